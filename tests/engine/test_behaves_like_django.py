"""The engine behaves like Django's own SQLite backend.

The whole suite runs on the engine; these tests cover what the other tests do not use.
"""

import asyncio
import datetime as dt
import decimal
import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.db import (
    IntegrityError,
    NotSupportedError,
    OperationalError,
    connections,
    models,
    transaction,
)
from django.test.utils import isolate_apps

from django_mqlite.sqlite3 import base
from django_mqlite.sqlite3.driver import Database, compiled_limit
from tests.support.engines import database, execute


def make_models():
    with isolate_apps("django_mqlite"):

        class Author(models.Model):  # noqa: DJ008
            name = models.CharField(max_length=50, unique=True)
            born = models.DateField(null=True)

            class Meta:
                app_label = "django_mqlite"

        class Book(models.Model):  # noqa: DJ008
            author = models.ForeignKey(Author, models.CASCADE)
            price = models.DecimalField(max_digits=8, decimal_places=2, null=True)
            at = models.DateTimeField(null=True)
            clock = models.TimeField(null=True)
            length = models.DurationField(null=True)
            in_print = models.BooleanField(default=True)
            facts = models.JSONField(null=True)
            data = models.BinaryField(null=True)
            number = models.UUIDField(null=True)

            class Meta:
                app_label = "django_mqlite"

    return Author, Book


@pytest.fixture
def library(engine):
    author, book = make_models()
    with engine.schema_editor() as editor:
        editor.create_model(author)
        editor.create_model(book)
    return author, book


def test_vendor_is_sqlite(engine):
    assert (engine.vendor, engine.display_name) == ("sqlite", "SQLite")
    assert engine.ops.__class__.__module__ == "django.db.backends.sqlite3.operations"


def test_value_of_every_type_is_stored_without_loss(library):
    author, book = library
    writer = author.objects.using("engine").create(name="A", born=dt.date(1900, 1, 2))
    values = {
        "price": decimal.Decimal("12.30"),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
        "clock": dt.time(1, 2, 3, 4),
        "length": dt.timedelta(days=1, microseconds=5),
        "in_print": False,
        "facts": {"a": [1, None, "ü"]},
        "data": b"\0\xff",
        "number": uuid.UUID(int=7),
    }

    stored = book.objects.using("engine").create(author=writer, **values)
    loaded = book.objects.using("engine").get(pk=stored.pk)

    assert {name: getattr(loaded, name) for name in values} == values
    assert author.objects.using("engine").get().born == dt.date(1900, 1, 2)
    assert book.objects.using("engine").get(facts__a__0=1, at__year=2026).pk == stored.pk


def test_djangos_sql_functions_are_available(library):
    author, _ = library
    for name in ("Ann", "Bob", "Böll"):
        author.objects.using("engine").create(name=name)
    names = author.objects.using("engine")

    assert names.filter(name__regex=r"^B").count() == 2
    assert names.filter(name__iregex=r"^b").count() == 2
    assert names.aggregate(n=models.Count("name", distinct=True))["n"] == 3
    with pytest.raises(NotSupportedError):
        names.aggregate(models.Avg("born"))
    assert names.annotate(n=models.functions.Length("name")).get(name="Böll").n == 4


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


def test_queries_are_logged_with_their_parameters(engine):
    engine.force_debug_cursor = True
    execute(engine, "SELECT %s, %s", ["it's", 5])

    assert engine.queries[-1]["sql"] == "SELECT 'it''s', 5"


def test_nested_atomic_block_rolls_back_alone(engine):
    with transaction.atomic("engine"):
        execute(engine, "INSERT INTO t VALUES (1)")
        with suppress(RuntimeError), transaction.atomic("engine"):
            execute(engine, "INSERT INTO t VALUES (2)")
            raise RuntimeError
        with (
            pytest.raises(RuntimeError, match="durable"),
            transaction.atomic("engine", durable=True),
        ):
            pass

    assert execute(engine, "SELECT a FROM t") == [(1,)]


def test_on_commit_hooks_run_after_commit_and_not_after_rollback(engine):
    calls = []
    with transaction.atomic("engine"):
        transaction.on_commit(lambda: calls.append("committed"), using="engine")
        assert calls == []
    with suppress(RuntimeError), transaction.atomic("engine"):
        transaction.on_commit(lambda: calls.append("rolled back"), using="engine")
        raise RuntimeError

    assert calls == ["committed"]


def test_transaction_without_autocommit_lasts_until_commit(engine):
    engine.set_autocommit(False)
    execute(engine, "INSERT INTO t VALUES (1)")
    engine.rollback()
    execute(engine, "INSERT INTO t VALUES (2)")
    engine.commit()
    engine.set_autocommit(True)

    assert execute(engine, "SELECT a FROM t") == [(2,)]
    assert not engine.connection.in_transaction


def test_error_is_djangos_and_the_connection_stays_usable(library, engine):
    author, book = library
    author.objects.using("engine").create(name="A")

    with pytest.raises(IntegrityError, match="UNIQUE"):
        author.objects.using("engine").create(name="A")
    with pytest.raises(IntegrityError, match="FOREIGN KEY"), transaction.atomic("engine"):
        book.objects.using("engine").create(author_id=99)
    with pytest.raises(OperationalError, match="no such table"):
        execute(engine, "SELECT * FROM absent")

    assert author.objects.using("engine").count() == 1


def test_altered_table_keeps_its_rows_and_references(library, engine):
    author, book = library
    writer = author.objects.using("engine").create(name="A")
    book.objects.using("engine").create(author=writer)
    field = models.CharField(max_length=80, default="")
    field.set_attributes_from_name("surname")

    with engine.schema_editor(atomic=True) as editor:
        editor.alter_field(author, author._meta.get_field("name"), field)
    with engine.schema_editor() as editor:
        added = models.IntegerField(default=7)
        added.set_attributes_from_name("pages")
        editor.add_field(book, added)

    assert execute(engine, "SELECT surname FROM django_mqlite_author") == [("A",)]
    assert execute(engine, "SELECT pages FROM django_mqlite_book") == [(7,)]
    engine.check_constraints()
    assert execute(engine, "PRAGMA foreign_keys") == [(1,)]


def test_schema_editor_refuses_a_transaction_with_foreign_keys(engine):
    with (
        transaction.atomic("engine"),
        pytest.raises(NotSupportedError, match="foreign key"),
        engine.schema_editor(atomic=True),
    ):
        pass


def test_row_with_a_missing_reference_fails_the_check(library, engine):
    with engine.constraint_checks_disabled():
        execute(engine, "INSERT INTO django_mqlite_book (author_id, in_print) VALUES (99, 1)")

    with pytest.raises(IntegrityError, match="does not have a corresponding value"):
        engine.check_constraints()


def test_tables_are_introspected(library, engine):
    with engine.cursor() as cursor:
        tables = {table.name for table in engine.introspection.get_table_list(cursor)}
        relations = engine.introspection.get_relations(cursor, "django_mqlite_book")
        columns = engine.introspection.get_table_description(cursor, "django_mqlite_author")

    assert {"django_mqlite_author", "django_mqlite_book"} <= tables
    assert relations["author_id"][:2] == ("id", "django_mqlite_author")
    assert [column.name for column in columns] == ["id", "name", "born"]


def test_dbshell_runs_sqlite3(engine):
    arguments, environment = engine.client.settings_to_cmd_args_env(engine.settings_dict, ["-bail"])

    assert arguments == ["sqlite3", engine.settings_dict["NAME"], "-bail"]
    assert environment is None


def test_cursor_can_be_read_in_parts(engine):
    with engine.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s)", [[n] for n in range(250)])
        cursor.execute("SELECT a FROM t ORDER BY a")
        assert cursor.fetchone() == (0,)
        assert cursor.fetchmany(2) == [(1,), (2,)]
        assert sum(1 for _ in cursor) == 247


def test_coroutines_use_the_database_through_threads(library):
    author, _ = library

    async def work():
        await author.objects.using("engine").acreate(name="async")

        def in_a_transaction():
            with transaction.atomic("engine"):
                author.objects.using("engine").update(name="changed")

        await sync_to_async(in_a_transaction)()
        names = [writer.name async for writer in author.objects.using("engine")]
        await sync_to_async(connections.close_all)()
        return names

    assert asyncio.run(work()) == ["changed"]


def test_memory_database_survives_close(open_database):
    memory = open_database(name=":memory:")
    execute(memory, "CREATE TABLE t (a)")
    memory.close()

    assert execute(memory, "SELECT * FROM t") == []


def test_memory_database_can_be_shared_with_a_thread(open_database):
    memory = open_database(name="file:shared?mode=memory&cache=shared")
    execute(memory, "CREATE TABLE t (a)")
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
