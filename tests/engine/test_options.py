"""Defaults under which many can write; every one can be overridden, and a wrong one is refused."""

import sqlite3

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, transaction

from tests.support.engines import execute

WAL, FULL = "wal", 2
LIMIT = 64 * 1024 * 1024


def pragma(connection, name):
    ((value,),) = execute(connection, f"PRAGMA {name}")
    return value


def begins(connection, monkeypatch):
    """How the connection's transactions begin."""
    connection.force_debug_cursor = True
    with transaction.atomic("engine"):
        execute(connection, "SELECT 1")
    return next(query["sql"] for query in connection.queries if query["sql"].startswith("BEGIN"))


def test_a_file_is_in_wal_mode_durable_and_its_wal_bounded(open_database, monkeypatch):
    engine = open_database()

    assert pragma(engine, "journal_mode") == WAL
    assert pragma(engine, "synchronous") == FULL
    assert pragma(engine, "journal_size_limit") == LIMIT
    assert pragma(engine, "foreign_keys") == 1
    assert begins(engine, monkeypatch) == "BEGIN IMMEDIATE"
    assert engine.connection.timeout == 5


def test_each_default_can_be_overridden(open_database, monkeypatch):
    engine = open_database(
        journal_mode="delete",
        synchronous="Normal",
        journal_size_limit=4096,
        transaction_mode="exclusive",
        timeout=0.5,
        init_command="PRAGMA cache_size = -123; PRAGMA temp_store = MEMORY",
    )

    assert pragma(engine, "journal_mode") == "delete"
    assert pragma(engine, "synchronous") == 1
    assert pragma(engine, "journal_size_limit") == 4096
    assert pragma(engine, "cache_size") == -123
    assert pragma(engine, "temp_store") == 2
    assert begins(engine, monkeypatch) == "BEGIN EXCLUSIVE"
    assert engine.connection.timeout == 0.5


def test_none_leaves_it_to_sqlite(open_database, monkeypatch):
    engine = open_database(
        journal_mode=None, synchronous=None, journal_size_limit=None, transaction_mode=None
    )

    assert pragma(engine, "journal_mode") == "delete"
    assert begins(engine, monkeypatch) == "BEGIN"


def test_what_an_init_command_says_comes_last(open_database):
    engine = open_database(init_command="PRAGMA synchronous = OFF")

    assert pragma(engine, "synchronous") == 0


@pytest.mark.parametrize(
    ("options", "said"),
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
def test_a_wrong_option_is_refused_by_name(open_database, options, said):
    engine = open_database(**options)

    with pytest.raises(ImproperlyConfigured) as refused:
        engine.ensure_connection()

    assert said in str(refused.value)
    assert "DATABASES['engine']['OPTIONS']" in str(refused.value)


def test_sqlites_own_wait_stays_off_whatever_an_init_command_says(open_database):
    engine = open_database(init_command="PRAGMA busy_timeout = 5000")

    assert pragma(engine, "busy_timeout") == 0


def test_the_options_for_djangos_engine_do_as_well(open_database):
    from django_mqlite.conf import sqlite_options  # noqa: PLC0415 - beside the one test

    engine = open_database(**sqlite_options(timeout=3, synchronous="NORMAL"))

    assert (pragma(engine, "journal_mode"), pragma(engine, "synchronous")) == (WAL, 1)
    assert engine.connection.timeout == 3


def test_check_same_thread_is_warned_of_as_before(open_database):
    engine = open_database(check_same_thread=True)

    with pytest.warns(RuntimeWarning, match="check_same_thread"):
        engine.ensure_connection()


def test_a_file_that_cannot_be_written_is_read_as_it_is(open_database, tmp_path):
    path = tmp_path / "engine.sqlite3"
    with sqlite3.connect(path) as writable:
        writable.execute("CREATE TABLE t (a)")
    writable.close()

    engine = open_database(name=f"file:{path}?mode=ro")

    assert execute(engine, "SELECT * FROM t") == []
    assert pragma(engine, "journal_mode") == "delete"
    with pytest.raises(OperationalError, match="readonly"):
        execute(engine, "INSERT INTO t VALUES (1)")


def test_without_a_name_there_is_no_database(open_database):
    engine = open_database()
    engine.settings_dict["NAME"] = ""

    with pytest.raises(ImproperlyConfigured, match="NAME"):
        engine.ensure_connection()
