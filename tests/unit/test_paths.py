"""The file that a database name or URI refers to."""

from pathlib import Path

import pytest

from django_mqlite.paths import absolute_name, file_of
from django_mqlite.sqlite3.driver import Database

HERE = Path.cwd()

NAMES = {
    "": None,
    ":memory:": None,
    "file:": None,
    "file::memory:": None,
    "file::memory:?cache=shared": None,
    "file:tests?mode=memory&cache=shared": None,
    "file:/tests?vfs=memdb": None,
    "queue.sqlite3": HERE / "queue.sqlite3",
    "/srv/queue.sqlite3": Path("/srv/queue.sqlite3"),
    "file:queue.sqlite3": HERE / "queue.sqlite3",
    "file:data/queue.sqlite3?mode=rwc": HERE / "data" / "queue.sqlite3",
    "file:/srv/queue.sqlite3?mode=ro": Path("/srv/queue.sqlite3"),
    "file:///srv/queue.sqlite3": Path("/srv/queue.sqlite3"),
    "file://localhost/srv/queue.sqlite3": Path("/srv/queue.sqlite3"),
    "file:/srv/a%20b%3f.sqlite3?cache=private": Path("/srv/a b?.sqlite3"),
}


@pytest.mark.parametrize("name", NAMES)
def test_database_name_refers_to_a_file(name):
    assert file_of(name) == NAMES[name]


@pytest.mark.parametrize("name", NAMES)
def test_absolute_name_refers_to_the_same_file_everywhere(name, tmp_path, monkeypatch):
    absolute = absolute_name(name)
    monkeypatch.chdir(tmp_path)

    assert file_of(absolute) == NAMES[name]
    assert absolute_name(absolute) == absolute


@pytest.mark.parametrize("name", ["a b.sqlite3", "file:a%20b.sqlite3?mode=rwc"])
def test_absolute_name_is_opened_by_sqlite(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    absolute = absolute_name(name)
    monkeypatch.chdir("/")

    Database.connect(absolute, uri=True).execute("CREATE TABLE t (id)").connection.close()

    assert [path.name for path in tmp_path.iterdir()] == ["a b.sqlite3"]
