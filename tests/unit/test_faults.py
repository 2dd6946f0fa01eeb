"""A database that fails is waited for, told about once, and given up in the end."""

import logging
import sqlite3
from contextlib import ExitStack, closing
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from django_mqlite.worker import database_errors
from django_mqlite.worker.database_errors import (
    GIVE_UP_AFTER,
    LONGEST_RETRY_DELAY,
    DatabaseErrors,
    advice,
)

LOCKED = OperationalError("database is locked")


@pytest.fixture
def time(monkeypatch):
    """The time of day for `faults`, moved by the test."""
    fake = SimpleNamespace(now=1_000.0)
    fake.monotonic = lambda: fake.now
    monkeypatch.setattr(database_errors, "time", fake)
    return fake


def rests(found: DatabaseErrors, count: int) -> list[float]:
    return [found.failed(LOCKED) for _ in range(count)]


def test_rests_grow_to_a_bound(time):
    grown = rests(DatabaseErrors(), 9)

    assert grown[:3] == [0.1, 0.2, 0.4]
    assert grown == sorted(grown)
    assert grown[-1] == LONGEST_RETRY_DELAY


def test_a_failure_is_told_once_with_what_to_do(time, caplog):
    rests(DatabaseErrors(), 5)

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "database is locked" in record.getMessage()
    assert "long transactions" in record.getMessage()


def test_an_answer_begins_everything_afresh(time, caplog):
    caplog.set_level(logging.INFO)
    found = DatabaseErrors()
    rests(found, 5)
    time.now += GIVE_UP_AFTER

    found.cleared()
    time.now += GIVE_UP_AFTER

    assert rests(found, 1) == [0.1]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]


def test_an_answer_without_a_failure_says_nothing(time, caplog):
    caplog.set_level(logging.INFO)

    DatabaseErrors().cleared()

    assert caplog.records == []


def test_nothing_but_failure_is_given_up_with_the_error(time):
    found = DatabaseErrors()
    rests(found, 1)
    time.now += GIVE_UP_AFTER
    rests(found, 1)
    time.now += 0.001

    with pytest.raises(OperationalError) as raised:
        found.failed(LOCKED)

    assert raised.value is LOCKED


@pytest.fixture
def connect(tmp_path):
    """Opens the file as SQLite does, and closes everything in the end."""
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
        (full, "free space"),
        (read_only, "cannot be written"),
        (missing_directory, "directory"),
        (missing_table, "manage.py migrate"),
    ],
)
def test_what_sqlite_says_is_met_with_what_to_do(fail, hint, connect):
    with pytest.raises(sqlite3.OperationalError) as raised:
        fail(connect)

    assert hint in advice(raised.value)


def test_an_error_of_another_kind_speaks_for_itself():
    assert advice(OperationalError("something new")) == "see the error"
