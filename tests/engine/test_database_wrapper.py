"""Changes of Django's SQLite backend: parameters, test databases and limits.

The rest is proven by Django's own tests, which tests/django_suite runs on the engine.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import OperationalError, connections

from django_mqlite.sqlite3 import base
from django_mqlite.sqlite3.driver import Database, compiled_limit
from tests.support.engines import database, execute


def test_engine_is_sqlite_for_django(engine):
    assert (engine.vendor, engine.display_name) == ("sqlite", "SQLite")
    assert engine.ops.__class__.__module__ == "django.db.backends.sqlite3.operations"


def test_percent_signs_and_many_parameters_are_accepted(engine):
    assert execute(engine, "SELECT strftime('%Y', '2026-01-02')") == [("2026",)]
    assert execute(engine, "SELECT strftime('%%Y', %s)", ["2026-01-02"]) == [("2026",)]
    assert execute(engine, "SELECT %(a)s || '%%s' || %(a)s", {"a": "x"}) == [("x%sx",)]
    many = list(range(900))
    sql = f"SELECT 899 IN ({', '.join(['%s'] * len(many))})"
    assert execute(engine, sql, many) == [(1,)]
    longer = f"/* {'x' * base.MAX_CACHED_QUERY} */ {sql}"
    assert execute(engine, longer, many) == [(1,)]


def test_executemany_takes_named_parameters_and_no_rows(engine):
    with engine.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%(a)s)", ({"a": n} for n in range(3)))
        cursor.executemany("INSERT INTO t VALUES (%s)", iter([]))

    assert execute(engine, "SELECT count(*) FROM t") == [(3,)]


def test_transaction_without_autocommit_lasts_until_commit(engine):
    engine.set_autocommit(False)
    execute(engine, "INSERT INTO t VALUES (1)")
    engine.rollback()
    execute(engine, "INSERT INTO t VALUES (2)")
    engine.commit()
    engine.set_autocommit(True)

    assert execute(engine, "SELECT a FROM t") == [(2,)]
    assert not engine.connection.in_transaction


def test_cursor_can_be_read_in_parts(engine):
    with engine.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s)", [[n] for n in range(250)])
        cursor.execute("SELECT a FROM t ORDER BY a")
        assert cursor.fetchone() == (0,)
        assert cursor.fetchmany(2) == [(1,), (2,)]
        assert sum(1 for _ in cursor) == 247


def test_memory_database_survives_close_and_is_shared_with_a_thread(open_database):
    memory = open_database(name="file:shared?mode=memory&cache=shared")
    execute(memory, "CREATE TABLE t (a)")
    memory.close()
    memory.inc_thread_sharing()
    rows = []

    def read():
        connections["engine"] = memory
        rows.extend(execute(connections["engine"], "SELECT count(*) FROM t"))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(60)
    memory.dec_thread_sharing()

    assert rows == [(0,)]


@pytest.mark.parametrize("name", [None, "tested.sqlite3"])
def test_test_database_is_created_and_destroyed(open_database, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    engine = open_database()
    engine.settings_dict["TEST"] = engine.settings_dict["TEST"] | {"NAME": name}
    before = engine.settings_dict["NAME"]

    created = engine.creation._create_test_db(verbosity=0, autoclobber=True)
    engine.close()
    engine.settings_dict["NAME"] = created
    execute(engine, "CREATE TABLE made (a)")
    engine.creation.destroy_test_db(before, verbosity=0)

    assert created == (name or "file:memorydb_engine?mode=memory&cache=shared")
    assert [path.name for path in Path().iterdir()] == []
    assert engine.settings_dict["NAME"] == before


def test_clone_contains_what_is_still_in_the_wal(engine):
    execute(engine, "INSERT INTO t VALUES (1)")
    path = engine.settings_dict["NAME"]

    engine.creation.clone_test_db("2", verbosity=0)
    engine.creation.setup_worker_connection("2")

    assert str(engine.settings_dict["NAME"]) == f"{path.with_suffix('')}_2{path.suffix}"
    assert execute(engine, "SELECT a FROM t") == [(1,)]
    assert execute(engine, "PRAGMA journal_mode") == [("wal",)]
    execute(engine, "INSERT INTO t VALUES (2)")
    with database("original", path) as original:
        assert execute(original, "SELECT a FROM t") == [(1,)]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_memory_database_is_cloned_for_any_start_method(
    open_database, tmp_path, monkeypatch, method
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("multiprocessing.get_start_method", lambda: method)
    memory = open_database(name="file:memorydb_engine?mode=memory&cache=shared")
    execute(memory, "CREATE TABLE t (a)")
    execute(memory, "INSERT INTO t VALUES (1)")

    memory.creation.clone_test_db("1", verbosity=0)
    memory.creation.setup_worker_connection("1")

    assert execute(memory, "SELECT a FROM t") == [(1,)]
    memory.close()
    if method == "spawn":
        memory.creation._destroy_test_db(memory.settings_dict["NAME"], verbosity=0)
    assert list(tmp_path.iterdir()) == []


def test_clone_is_kept_with_keepdb(engine):
    engine.creation.clone_test_db("2", verbosity=0)
    execute(engine, "INSERT INTO t VALUES (1)")

    engine.creation.clone_test_db("2", verbosity=0, keepdb=True)
    engine.creation.setup_worker_connection("2")

    assert execute(engine, "SELECT a FROM t") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_process_opens_its_own_connection(engine):
    execute(engine, "INSERT INTO t VALUES (1)")
    engine.close()

    child = os.fork()
    if not child:
        with suppress(BaseException):
            execute(engine, "INSERT INTO t VALUES (2)")
            engine.close()
            os._exit(0)
        os._exit(1)

    assert os.waitpid(child, 0)[1] == 0
    assert execute(engine, "SELECT a FROM t") == [(1,), (2,)]


def test_compiled_limit_equals_the_connections_limit(engine):
    """Only Python's driver has getlimit(), so only there can they be compared."""
    if hasattr(Database.Connection, "getlimit"):
        assert compiled_limit(9) == engine.connection.getlimit(9)
        assert compiled_limit(2) == engine.connection.getlimit(2)
    with pytest.raises(Database.ProgrammingError, match="99"):
        compiled_limit(99)


def test_max_query_params_is_within_sqlites_limit(engine):
    limit = engine.connection.getlimit(9)
    assert engine.features.max_query_params <= limit

    (row,) = execute(engine, f"SELECT 1 IN ({', '.join(['%s'] * limit)})", [0] * limit)

    assert row == (0,)
    with pytest.raises(OperationalError, match="too many"):
        execute(engine, f"SELECT 1 IN ({', '.join(['%s'] * 300_000)})", [0] * 300_000)
