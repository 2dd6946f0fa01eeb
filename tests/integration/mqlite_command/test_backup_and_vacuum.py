"""mqlite backup and vacuum, beside other programs that use the file."""

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from django.core.management import CommandError
from django.db import connections, transaction

from django_mqlite.store.sqlite import database_file as store
from django_mqlite.verbs import database_file
from tests.support.workers import ALIAS

from .calls import answer, mqlite

HERE = ("--database", ALIAS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "copy.sqlite3"


def bodies(path):
    with closing(sqlite3.connect(path)) as copy:
        return copy.execute("SELECT body FROM mqlite_messages ORDER BY id").fetchall()


def files_beside(path):
    return sorted(file.name for file in path.parent.iterdir() if file.is_file())


# backup


def test_backup_is_a_complete_copy(database, path):
    database.enqueue("jobs", {"order": 1})

    text = mqlite("backup", path, *HERE)

    size = path.stat().st_size
    assert text == f"{path} written: {size:,} bytes.\n"
    assert bodies(path) == [(b'{"order":1}',)]
    assert files_beside(path) == ["copy.sqlite3"]
    second = path.with_name("second.sqlite3")
    assert answer("backup", second, *HERE) == {"path": str(second), "bytes": size}


def test_backup_beside_a_writer_has_the_state_of_its_start(database, path, monkeypatch):
    monkeypatch.setattr(store, "PAGES_PER_STEP", 1)
    database.enqueue("jobs", b"before")
    progress = []

    with database.other_program() as other:

        def write(done, total):
            assert len(progress) < 1_000, "the backup starts again with every commit"
            progress.append(done)
            other.execute("UPDATE mqlite_queues SET updated_at = updated_at + 1")
            other.execute(
                "INSERT INTO mqlite_messages (queue, enqueued_at, body) VALUES ('jobs', 0, x'00')"
            )

        database_file.back_up(ALIAS, path, write)

    assert progress == sorted(progress)
    assert len(progress) > 20
    assert bodies(path) == [(b"before",)]
    assert database.left() == 1 + len(progress)


def test_interrupted_backup_leaves_no_file(database, path, monkeypatch):
    monkeypatch.setattr(store, "PAGES_PER_STEP", 1)

    def interrupt(done, total):
        if done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database_file.back_up(ALIAS, path, interrupt)

    assert files_beside(path) == []
    database.enqueue("jobs", 1)  # the connection is usable


def no_hard_links(path, target):
    raise PermissionError("no hard links here")


@pytest.mark.parametrize("link", [Path.hardlink_to, no_hard_links], ids=["links", "no links"])
def test_backup_is_kept_if_another_to_the_path_ends_later(database, path, monkeypatch, link):
    monkeypatch.setattr(Path, "hardlink_to", link)
    database.enqueue("jobs", b"both")

    def back_up_again(done, total):
        if not path.exists():
            other = Thread(target=mqlite, args=("backup", path, *HERE))
            other.start()
            other.join(60)
            assert path.exists()

    with pytest.raises(database_file.NotPossible, match="does not overwrite files"):
        database_file.back_up(ALIAS, path, back_up_again)

    assert bodies(path) == [(b"both",)]
    assert files_beside(path) == ["copy.sqlite3"]


def test_damaged_copy_is_deleted(database, path, monkeypatch):
    monkeypatch.setattr(store, "back_up", lambda *_: ["row 3 missing from index"])

    with pytest.raises(CommandError, match="damaged and was deleted: row 3 missing"):
        mqlite("backup", path, *HERE)

    assert files_beside(path) == []


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("precious", "exists: a backup does not overwrite"),
        ("database/queue.sqlite3", "exists: a backup does not overwrite"),
        ("missing/copy.sqlite3", "there is no directory"),
        ("b" * 400, "File name too long"),
    ],
    ids=["file", "itself", "directory", "name"],
)
def test_backup_to_an_impossible_path_writes_nothing(database, tmp_path, name, error):
    (tmp_path / "precious").write_text("precious")

    with pytest.raises(CommandError, match=error):
        mqlite("backup", tmp_path / name, *HERE)

    assert (tmp_path / "precious").read_text() == "precious"
    assert files_beside(tmp_path / "precious") == ["precious"]


@pytest.mark.parametrize("command", [("backup", "copy.sqlite3"), ("vacuum", "--full", "--yes")])
def test_backup_and_full_vacuum_need_autocommit(database, command):
    with transaction.atomic(using=ALIAS), pytest.raises(CommandError, match="inside a transaction"):
        mqlite(*command, *HERE)


# vacuum


def fill_and_empty(database, count):
    """Leave free pages in the file."""
    database.enqueue_many("jobs", count, b"x" * 100_000)
    with database.other_program() as other:
        other.execute("DELETE FROM mqlite_messages")
    return database_file.storage(ALIAS).free


def test_vacuum_of_an_unprepared_file_names_the_full_vacuum(database, reply):
    with pytest.raises(CommandError, match=r"auto_vacuum=INCREMENTAL.*vacuum --full"):
        mqlite("vacuum", *HERE)

    reply("n\n")
    with pytest.raises(CommandError, match="Nothing was done"):
        mqlite("vacuum", "--full", *HERE)

    assert not database_file.storage(ALIAS).incremental


def test_vacuum_frees_all_pages_at_once_and_then_in_small_steps(database):
    free = fill_and_empty(database, 50)
    assert answer("vacuum", "--full", "--yes", *HERE)["bytes_freed"] >= free * 0.99 > 4_000_000
    assert database_file.storage(ALIAS).free == 0
    assert database.is_sound()

    free = fill_and_empty(database, 100)
    progress = []

    freed = database_file.vacuum_incrementally(ALIAS, progress.append)

    assert freed >= free * 0.99
    assert progress == sorted(progress)
    assert len(progress) > 1
    assert database.is_sound()
    size = database_file.storage(ALIAS).size
    assert mqlite("vacuum", *HERE) == f"0 of {size:,} bytes freed.\n"
    assert answer("vacuum", *HERE) == {"bytes_before": size, "bytes_freed": 0, "full": False}


def test_full_vacuum_of_a_locked_file_names_the_other_writer(database):
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")

    with database.locked(), pytest.raises(CommandError, match=r"locked .another writer"):
        mqlite("vacuum", "--full", "--yes", *HERE)
