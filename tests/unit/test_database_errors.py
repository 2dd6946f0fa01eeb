"""Database errors are retried with growing delays, logged once, and raised after a minute."""

import logging
import sqlite3
from contextlib import ExitStack, closing
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from django_mqlite.worker import database_errors
from django_mqlite.worker.database_errors import (
    GIVE_UP_AFTER,
    MAX_RETRY_DELAY,
    DatabaseErrors,
    advice,
)

LOCKED = OperationalError("database is locked")


@pytest.fixture
def time(monkeypatch):
    """The monotonic clock of the module, which the test moves."""
    fake = SimpleNamespace(now=1_000.0)
    fake.monotonic = lambda: fake.now
    monkeypatch.setattr(database_errors, "time", fake)
    return fake


def delays(errors: DatabaseErrors, count: int) -> list[float]:
    return [errors.failed(LOCKED) for _ in range(count)]


def test_retry_delay_grows_to_a_limit(time):
    grown = delays(DatabaseErrors(), 9)

    assert grown[:3] == [0.1, 0.2, 0.4]
    assert grown == sorted(grown)
    assert grown[-1] == MAX_RETRY_DELAY


def test_repeated_error_is_logged_once_with_advice(time, caplog):
    delays(DatabaseErrors(), 5)

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "database is locked" in record.getMessage()
    assert "long transactions" in record.getMessage()


def test_success_resets_delay_log_and_deadline(time, caplog):
    caplog.set_level(logging.INFO)
    errors = DatabaseErrors()
    delays(errors, 5)
    time.now += GIVE_UP_AFTER

    errors.cleared()
    time.now += GIVE_UP_AFTER

    assert delays(errors, 1) == [0.1]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]


def test_success_without_an_error_logs_nothing(time, caplog):
    caplog.set_level(logging.INFO)

    DatabaseErrors().cleared()

    assert caplog.records == []


def test_persistent_error_is_raised_after_the_deadline(time):
    errors = DatabaseErrors()
    delays(errors, 1)
    time.now += GIVE_UP_AFTER
    delays(errors, 1)
    time.now += 0.001

    with pytest.raises(OperationalError) as raised:
        errors.failed(LOCKED)

    assert raised.value is LOCKED


@pytest.fixture
def connect(tmp_path):
    """Open the file as SQLite does; close every connection after the test."""
    with ExitStack() as opened:

        def connect(*names, query="", **options):
            name = f"file:{tmp_path.joinpath(*names, 'db.sqlite3')}{query}"
            connection = sqlite3.connect(name, uri=True, isolation_level=None, **options)
            return opened.enter_context(closing(connection))

        yield connect


def locked(connect):
    connect().execute("BEGIN IMMEDIATE")
    connect(timeout=0).execute("BEGIN IMMEDIATE")


def full(connect):
    small = connect()
    small.execute("PRAGMA max_page_count = 2")
    small.execute("CREATE TABLE t (c)")
    small.execute("INSERT INTO t VALUES (zeroblob(100000))")


def read_only(connect):
    connect().execute("CREATE TABLE t (c)")
    connect(query="?mode=ro").execute("DELETE FROM t")


def missing_directory(connect):
    connect("nowhere")


def missing_table(connect):
    connect().execute("SELECT * FROM mqlite_queues")


@pytest.mark.parametrize(
    ("fail", "hint"),
    [
        (locked, "long transactions"),
        (full, "disk space"),
        (read_only, "cannot be written"),
        (missing_directory, "write in its directory"),
        (missing_table, "manage.py migrate"),
    ],
)
def test_error_of_sqlite_has_its_own_advice(fail, hint, connect):
    with pytest.raises(sqlite3.OperationalError) as raised:
        fail(connect)

    assert hint in advice(raised.value)


def test_unknown_error_has_general_advice():
    assert advice(OperationalError("something new")) == "see the error"
