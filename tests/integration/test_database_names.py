"""Every form of NAME means one file: absolute, relative, a URI, a link, a second alias."""

import os
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.db import connection, connections

from django_mqlite.doorbell import doorbell_path
from django_mqlite.verbs.database_file import storage
from tests.settings import OWN_ENGINE
from tests.support import engines
from tests.support.source import ROOT
from tests.support.workers import ALIAS


def linked(path: Path) -> str:
    link = path.with_name("link.sqlite3")
    link.symlink_to(path)
    return str(link)


FORMS = {
    "absolute": str,
    "relative": lambda path: os.path.relpath(path, ROOT),
    "URI": lambda path: f"file:{path}?mode=rwc",
    "relative URI": lambda path: f"file:{os.path.relpath(path, ROOT)}?mode=rwc",
    "link": linked,
}

DJANGOS_ENGINE = "django.db.backends.sqlite3"

each_form = pytest.mark.parametrize("form", FORMS)


@pytest.mark.parametrize(
    ("form", "start", "engine"),
    [
        ("relative", "--threads=2", OWN_ENGINE),
        ("relative URI", "--processes=2", OWN_ENGINE),
        ("relative URI", "--threads=2", DJANGOS_ENGINE),
        ("relative", "--processes=2", DJANGOS_ENGINE),
    ],
)
def test_worker_keeps_its_file_when_a_handler_changes_the_directory(database, form, start, engine):
    name = FORMS[form](database.path)
    for _ in range(2):
        database.enqueue("wanders", str(database.beside))
    worker = database.start(
        *(start, "--queues=wanders,jobs"), MQLITE_TEST_ENGINE=engine, MQLITE_TEST_DATABASE=name
    )
    database.wait_empty()

    database.enqueue_many("jobs", 4)  # for threads that have connected to nothing yet
    database.wait_empty()

    assert len(database.effects()) == 4
    worker.stop()
    assert "failed" not in worker.output
    assert not list(database.beside.glob("*.sqlite3"))


@each_form
def test_file_its_wal_and_its_doorbell_have_one_path(database, monkeypatch, form):
    database.enqueue("jobs")
    database.close()
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(connections[ALIAS].settings_dict, "NAME", FORMS[form](database.path))
    database.enqueue("jobs")

    files = storage(ALIAS)

    assert files.path.samefile(database.path)
    assert files.wal_size > 0
    assert doorbell_path(ALIAS) == database.path.with_name("queue.sqlite3-doorbell")


# Two aliases


def warnings() -> list[str]:
    return [check.msg for check in run_checks(tags=["mqlite"]) if check.id == "mqlite.W014"]


@pytest.mark.django_db
@each_form
def test_second_alias_of_the_file_is_warned_of(form, tmp_path, monkeypatch):
    path = tmp_path / "queue.sqlite3"
    path.touch()
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(connection.settings_dict, "NAME", str(path))

    with engines.database("second", FORMS[form](path)):
        (warning,) = warnings()

    assert "'default' and 'second' are the same file" in warning


@pytest.mark.django_db
@pytest.mark.parametrize("name", [":memory:", "other.sqlite3", "file:memory?mode=memory"])
def test_alias_of_another_database_is_not_warned_of(name, tmp_path):
    with engines.database("second", name if ":" in name else tmp_path / name):
        assert warnings() == []
