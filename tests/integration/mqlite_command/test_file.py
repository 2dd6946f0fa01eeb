"""mqlite backup, vacuum, doctor: the file itself, beside others who work on it."""

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections, transaction

from django_mqlite import doctor
from django_mqlite.models import Message
from django_mqlite.store.sqlite import database_file as store
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs import database_file
from django_mqlite.verbs.workers import register
from tests.support.workers import ALIAS

from .calls import Terminal, answer, mqlite

HERE = ("--database", ALIAS)


def rows_of(path):
    with closing(sqlite3.connect(path)) as copy:
        return copy.execute("SELECT body FROM mqlite_messages ORDER BY id").fetchall()


def wait_for_pages(database, count, size=100_000):
    """Fill the file and empty it again, so that it has free pages."""
    ids = database.enqueue_many("jobs", count, b"x" * size)
    with database.other_program() as other:
        other.execute("DELETE FROM mqlite_messages")
    return ids


# Backup


def test_a_backup_is_a_complete_copy(database, tmp_path):
    database.enqueue("jobs", {"order": 1})
    path = tmp_path / "copy.sqlite3"

    text = mqlite("backup", path, *HERE)

    assert text == f"{path} written: {path.stat().st_size:,} bytes.\n"
    assert rows_of(path) == [(b'{"order":1}',)]
    assert [each.name for each in tmp_path.glob("copy*")] == ["copy.sqlite3"]


def test_a_backup_in_json(database, tmp_path):
    path = tmp_path / "copy.sqlite3"

    found = answer("backup", path, *HERE)

    assert found == {"path": str(path), "bytes": path.stat().st_size}


def test_a_backup_ends_beside_a_busy_writer_with_what_was_there_when_it_began(
    database, tmp_path, monkeypatch
):
    monkeypatch.setattr(store, "PAGES_PER_STEP", 1)
    database.enqueue("jobs", b"before")
    path = tmp_path / "copy.sqlite3"
    told = []

    with database.other_program() as other:

        def write(done, total):
            assert len(told) < 1_000, "it begins anew with every commit"
            told.append(done)
            other.execute("UPDATE mqlite_queues SET updated_at = updated_at + 1")
            other.execute(
                "INSERT INTO mqlite_messages (queue, enqueued_at, body) VALUES ('jobs', 0, x'00')"
            )

        database_file.back_up(ALIAS, path, write)

    assert told == sorted(told)
    assert len(told) > 20
    assert rows_of(path) == [(b"before",)]
    assert database.left() == 1 + len(told)


def test_an_interrupted_backup_leaves_nothing_behind(database, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PAGES_PER_STEP", 1)
    path = tmp_path / "copy.sqlite3"

    def interrupt(done, total):
        if done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database_file.back_up(ALIAS, path, interrupt)

    assert list(tmp_path.glob("copy*")) == []
    database.enqueue("jobs", 1)  # the connection is usable


def test_of_two_backups_at_the_same_time_one_is_kept_and_whole(database, tmp_path):
    database.enqueue("jobs", b"both")
    path = tmp_path / "copy.sqlite3"
    others = []

    def another(done, total):
        if not others:
            others.append(path)
            backup = Thread(target=mqlite, args=("backup", path, *HERE))
            backup.start()
            backup.join(60)
            assert path.exists()

    with pytest.raises(database_file.NotPossible, match="does not overwrite files"):
        database_file.back_up(ALIAS, path, another)

    assert rows_of(path) == [(b"both",)]
    assert [each.name for each in tmp_path.glob("copy*")] == ["copy.sqlite3"]


def test_without_hard_links_a_backup_is_renamed_and_overwrites_nothing(
    database, tmp_path, monkeypatch
):
    def refuse(path, target):
        raise PermissionError("no hard links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "copy.sqlite3"

    database_file.back_up(ALIAS, path, lambda done, total: None)
    assert rows_of(path) == []
    with pytest.raises(database_file.NotPossible, match="does not overwrite files"):
        database_file.back_up(
            ALIAS, tmp_path / "late", lambda done, total: (tmp_path / "late").touch()
        )

    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == [
        "copy.sqlite3",
        "late",
    ]


def test_a_copy_that_is_damaged_is_not_kept(database, tmp_path, monkeypatch):
    path = tmp_path / "copy.sqlite3"
    monkeypatch.setattr(store, "back_up", lambda *_: ["row 3 missing from index"])

    with pytest.raises(CommandError, match="damaged and was deleted: row 3 missing"):
        mqlite("backup", path, *HERE)

    assert list(tmp_path.glob("copy*")) == []


def test_a_backup_overwrites_nothing(database, tmp_path):
    path = tmp_path / "copy.sqlite3"
    path.write_text("precious")

    with pytest.raises(CommandError, match="exists: a backup does not overwrite"):
        mqlite("backup", path, *HERE)
    with pytest.raises(CommandError, match="exists"):
        mqlite("backup", database.path, *HERE)

    assert path.read_text() == "precious"


def test_a_backup_needs_a_directory(database, tmp_path):
    with pytest.raises(CommandError, match="there is no directory"):
        mqlite("backup", tmp_path / "no" / "copy.sqlite3", *HERE)


def test_a_backup_and_a_full_vacuum_are_refused_inside_a_transaction(database, tmp_path):
    with transaction.atomic(using=ALIAS):
        with pytest.raises(CommandError, match="inside a transaction"):
            mqlite("backup", tmp_path / "copy.sqlite3", *HERE)
        with pytest.raises(CommandError, match="inside a transaction"):
            mqlite("vacuum", "--full", "--yes", *HERE)


def test_a_backup_shows_a_bar_on_a_terminal(database, tmp_path, capsys):
    call_command(
        "mqlite", "backup", str(tmp_path / "copy.sqlite3"), *HERE,
        stdout=io.StringIO(), stderr=Terminal(),
    )  # fmt: skip

    assert rows_of(tmp_path / "copy.sqlite3") == []


# Vacuum


def test_a_file_that_was_not_made_for_it_is_told_the_way_out(database):
    with pytest.raises(CommandError, match=r"auto_vacuum=INCREMENTAL.*vacuum --full"):
        mqlite("vacuum", *HERE)


def test_a_full_vacuum_gives_all_free_pages_back_and_makes_small_steps_possible(database):
    wait_for_pages(database, 50)
    before = database_file.storage(ALIAS)
    assert before.free > 4_000_000

    freed = answer("vacuum", "--full", "--yes", *HERE)["bytes_freed"]

    assert freed >= before.free * 0.99
    after = database_file.storage(ALIAS)
    assert (after.free, after.incremental) == (0, True)
    assert database.is_sound()

    wait_for_pages(database, 100)
    before = database_file.storage(ALIAS)
    told = []
    freed = database_file.vacuum_incrementally(ALIAS, told.append)
    assert freed >= before.free * 0.99
    assert told == sorted(told)
    assert len(told) > 1
    size = database_file.storage(ALIAS).size
    assert mqlite("vacuum", *HERE) == f"0 of {size:,} bytes freed.\n"
    assert answer("vacuum", *HERE) == {"bytes_before": size, "bytes_freed": 0, "full": False}
    assert database.is_sound()


def test_a_full_vacuum_asks(database, typing):
    typing("n\n")

    with pytest.raises(CommandError, match="Nothing was done"):
        mqlite("vacuum", "--full", *HERE)

    assert not database_file.storage(ALIAS).incremental


def test_a_vacuum_that_finds_the_file_locked_says_so(database):
    with database.other_program() as other:
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CommandError, match=r"locked .another writer"):
            mqlite("vacuum", "--full", "--yes", *HERE)
        other.execute("ROLLBACK")


# Doctor


@pytest.fixture
def in_order(monkeypatch):
    """Whatever SQLite the tests run on and wherever, both are in order unless the test says so."""
    monkeypatch.setattr(connection.Database, "sqlite_version_info", (3, 53, 0))
    monkeypatch.setattr(doctor, "has_wal_reset_bug", lambda version: False)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**15))


def diagnosis(capsys, *arguments):
    """The exit code and the answer."""
    try:
        call_command("mqlite", "doctor", "--json", *arguments)
    except SystemExit as ended:
        code = ended.code
    else:
        code = 0
    return code, json.loads(capsys.readouterr().out)


def test_a_project_in_order_is_told_so_with_the_facts(db, in_order, capsys):
    code, found = diagnosis(capsys)

    assert code == 0
    assert found["healthy"] is True
    assert found["findings"] == []
    assert set(found["facts"]) == {
        "path",
        "size",
        "free",
        "unused",
        "wal_size",
        "incremental_vacuum",
        "journal_mode",
        "synchronous",
        "sqlite_version",
        "sqlite_source",
        "wal_reset_bug",
        "integrity_checked",
    }
    assert found["facts"]["sqlite_version"] == sqlite3.sqlite_version
    assert found["facts"]["size"] > 100_000
    assert found["facts"]["journal_mode"] == "wal"


def test_the_same_in_words(db, in_order):
    text = mqlite("doctor")

    assert text.startswith("No problems found.\nSQLite ")
    assert "without the WAL-reset bug" in text
    assert "journal mode: wal, synchronous: FULL" in text
    assert "integrity: not checked" in mqlite("doctor", "--quick")


def test_the_wal_reset_bug_is_a_fact_and_a_warning_with_its_cure(db, in_order, monkeypatch):
    monkeypatch.setattr(connection.Database, "sqlite_version_info", (3, 40, 1))
    monkeypatch.setattr(doctor, "has_wal_reset_bug", lambda version: True)

    text = mqlite("doctor")

    assert "WARNING (mqlite.W001): SQLite 3.40.1 has the WAL-reset bug" in text
    assert "See django-mqlite's docs/checks.md#mqlitew001." in text
    assert "has the WAL-reset bug;" in text


def test_what_the_project_has_silenced_stays_silent(db, in_order, monkeypatch, settings):
    monkeypatch.setattr(connection.Database, "sqlite_version_info", (3, 40, 1))
    settings.SILENCED_SYSTEM_CHECKS = ["mqlite.W001"]

    assert "mqlite.W001" not in mqlite("doctor")


def test_an_error_of_the_checks_is_an_error_of_the_doctor(db, in_order, settings, capsys):
    settings.MQLITE = {"QUEUE": {}}

    code, found = diagnosis(capsys)

    assert (code, found["healthy"]) == (1, False)
    assert found["findings"][0]["id"] == "mqlite.E001"


def test_a_damaged_file_is_an_error(database, in_order, capsys):
    for column, other_column in (("(subject)", "(reply_to)"), ("(reply_to)", "(subject)")):
        with database.other_program() as other:
            other.execute("PRAGMA writable_schema = ON")
            other.execute(
                "UPDATE sqlite_master SET sql = replace(sql, ?, ?)"
                " WHERE name = 'mqlite_messages_subject'",
                [column, other_column],
            )
        database.enqueue("jobs", 1, subject="in the index", reply_to="not in the index")
    database.close()

    code, found = diagnosis(capsys, *HERE)

    assert code == 1
    damaged = [each for each in found["findings"] if each["id"] == "damaged"]
    assert damaged
    assert all("The file is damaged: " in each["text"] for each in damaged)
    assert diagnosis(capsys, "--quick", *HERE)[0] == 0


def test_a_message_of_no_queue_is_damage(database, in_order):
    with database.other_program() as other:
        other.execute("PRAGMA foreign_keys = OFF")
        other.execute(
            "INSERT INTO mqlite_messages (queue, enqueued_at, body) VALUES ('nowhere', 0, x'')"
        )

    assert database_file.find_damage(ALIAS) == [
        "a row of mqlite_messages refers to a missing row of mqlite_queues"
    ]


def with_storage(monkeypatch, **facts):
    found = database_file.storage("default")
    values = {name: getattr(found, name) for name in found.__slots__} | facts
    monkeypatch.setattr(doctor, "storage", lambda using: database_file.Storage(**values))


@pytest.mark.parametrize(
    ("facts", "id", "advice"),
    [
        ({"wal_size": 2**28}, "large_wal", "end long transactions"),
        ({"size": 2**30, "free": 2**29}, "free_pages", "mqlite vacuum --full"),
        ({"size": 2**30, "free": 2**29, "incremental": True}, "free_pages", "mqlite vacuum`"),
        ({"size": 10**16}, "low_disk_space", "Free disk space"),
    ],
    ids=["WAL", "free pages", "free pages, incremental", "disk"],
)
def test_what_the_file_lacks_is_told_with_advice(db, in_order, monkeypatch, facts, id, advice):
    with_storage(monkeypatch, **facts)

    (finding,) = doctor.diagnose("default", thorough=False).findings

    assert (finding.level, finding.id) == ("warning", id)
    assert advice in finding.advice


@pytest.mark.parametrize(
    "facts", [{"wal_size": 2**20}, {"size": 2**20, "free": 2**19}, {"size": 2**30, "free": 2**25}]
)
def test_little_is_not_worth_a_word(db, in_order, monkeypatch, facts):
    with_storage(monkeypatch, **facts)

    assert doctor.diagnose("default", thorough=False).findings == ()


def test_a_queue_that_nobody_serves_is_told(queue, in_order, clock):
    Message.objects.enqueue("jobs", 1)
    clock.advance(120)

    (finding,) = doctor.diagnose("default", thorough=False).findings

    assert finding.text == "Queue jobs has due messages, but no live worker serves it."


def test_a_database_that_cannot_be_read_is_told(db, monkeypatch):
    def fail(using):
        raise OperationalError("disk I/O error")

    monkeypatch.setattr(doctor, "storage", fail)

    with pytest.raises(CommandError, match=r"disk I/O error .the disk is full or failing"):
        mqlite("doctor")


def test_a_file_that_is_malformed_is_told_what_it_is(db, monkeypatch):
    def fail(using):
        raise OperationalError("malformed database schema (mqlite_messages_locked)")

    monkeypatch.setattr(doctor, "storage", fail)

    with pytest.raises(CommandError, match=r"the file is damaged; stop everything that uses it"):
        mqlite("doctor")


def test_sqlite_without_dbstat_says_nothing_of_unused_room(db, in_order, monkeypatch):
    monkeypatch.setattr(doctor, "unused_bytes", lambda using: None)

    assert "fragmentation" not in mqlite("doctor")


def test_live_workers_are_left_alone(db, in_order):
    record = WorkerRecord(
        worker="w",
        host="h",
        boot_id="b",
        pid_namespace=1,
        pid=1,
        process_started_at=0.0,
        queues=("jobs",),
        slots=1,
        in_flight=0,
        started_at=0,
    )
    register("default", record)

    assert mqlite("doctor").startswith("No problems found.")
