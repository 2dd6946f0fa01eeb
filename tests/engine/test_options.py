"""Options: defaults for many writers, ways to override them, and errors for invalid ones."""

import sqlite3

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, transaction

from django_mqlite.conf import sqlite_options
from tests.support.engines import execute

WAL = "wal"
OFF, NORMAL, FULL = 0, 1, 2
LIMIT = 64 * 1024 * 1024


def pragma(connection, name):
    ((value,),) = execute(connection, f"PRAGMA {name}")
    return value


def begin_statement(connection):
    """Return the statement that starts a transaction."""
    connection.force_debug_cursor = True
    with transaction.atomic("engine"):
        execute(connection, "SELECT 1")
    return next(query["sql"] for query in connection.queries if query["sql"].startswith("BEGIN"))


@pytest.mark.parametrize(
    ("options", "pragmas", "begin", "timeout"),
    [
        (
            {},
            {
                "journal_mode": WAL,
                "synchronous": FULL,
                "journal_size_limit": LIMIT,
                "foreign_keys": 1,
            },
            "BEGIN IMMEDIATE",
            5,
        ),
        (
            {
                "journal_mode": "delete",
                "synchronous": "Normal",
                "journal_size_limit": 4096,
                "transaction_mode": "exclusive",
                "timeout": 0.5,
                "init_command": "PRAGMA cache_size = -123; PRAGMA temp_store = MEMORY",
            },
            {
                "journal_mode": "delete",
                "synchronous": NORMAL,
                "journal_size_limit": 4096,
                "cache_size": -123,
                "temp_store": 2,
            },
            "BEGIN EXCLUSIVE",
            0.5,
        ),
        (
            dict.fromkeys(
                ("journal_mode", "synchronous", "journal_size_limit", "transaction_mode")
            ),
            {"journal_mode": "delete"},
            "BEGIN",
            5,
        ),
        (
            {"init_command": "PRAGMA synchronous = OFF; PRAGMA busy_timeout = 5000"},
            {"synchronous": OFF, "busy_timeout": 0},
            "BEGIN IMMEDIATE",
            5,
        ),
        (
            sqlite_options(timeout=3, synchronous="NORMAL"),
            {"journal_mode": WAL, "synchronous": NORMAL},
            "BEGIN IMMEDIATE",
            3,
        ),
    ],
    ids=["defaults", "other values", "None", "init_command last", "Django's engine"],
)
def test_options_configure_the_connection(open_database, options, pragmas, begin, timeout):
    engine = open_database(**options)

    assert {name: pragma(engine, name) for name in pragmas} == pragmas
    assert begin_statement(engine) == begin
    assert engine.connection.timeout == timeout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeuot": 5}, "no option 'timeuot'; did you mean 'timeout'?"),
        ({"factory": sqlite3.Connection}, "no option 'factory'; known: "),
        ({"isolation_level": "IMMEDIATE"}, "no option 'isolation_level'; known: "),
        ({"timeout": "5"}, "['timeout'] is 0 to 86400 seconds, not '5'"),
        ({"timeout": -1}, "['timeout'] is 0 to 86400 seconds, not -1"),
        ({"timeout": float("nan")}, "['timeout'] is 0 to 86400 seconds, not nan"),
        ({"timeout": True}, "['timeout'] is 0 to 86400 seconds, not True"),
        ({"transaction_mode": "LATER"}, "configured to 'LATER'. Use one of 'DEFERRED', "),
        ({"journal_mode": "WALL"}, "['journal_mode'] is None or one of WAL, "),
        ({"synchronous": 2}, "OFF, NORMAL, FULL, EXTRA, not 2"),
        ({"journal_size_limit": -2}, "a number of bytes, -1 or None, not -2"),
        ({"journal_size_limit": "1MB"}, "a number of bytes, -1 or None, not '1MB'"),
    ],
)
def test_invalid_option_is_refused_by_name(open_database, options, message):
    engine = open_database(**options)

    with pytest.raises(ImproperlyConfigured) as error:
        engine.ensure_connection()

    assert message in str(error.value)
    assert "DATABASES['engine']['OPTIONS']" in str(error.value)


def test_check_same_thread_raises_djangos_warning(open_database):
    engine = open_database(check_same_thread=True)

    with pytest.warns(RuntimeWarning, match="check_same_thread"):
        engine.ensure_connection()


def test_read_only_file_keeps_its_journal_mode(open_database, tmp_path):
    path = tmp_path / "engine.sqlite3"
    with sqlite3.connect(path) as writable:
        writable.execute("CREATE TABLE t (a)")
    writable.close()

    engine = open_database(name=f"file:{path}?mode=ro")

    assert execute(engine, "SELECT * FROM t") == []
    assert pragma(engine, "journal_mode") == "delete"
    with pytest.raises(OperationalError, match="readonly"):
        execute(engine, "INSERT INTO t VALUES (1)")


def test_database_without_a_name_is_refused(open_database):
    engine = open_database()
    engine.settings_dict["NAME"] = ""

    with pytest.raises(ImproperlyConfigured, match="NAME"):
        engine.ensure_connection()
