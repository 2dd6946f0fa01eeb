"""Whoever has to wait for the write lock gets it in turn, or the usual error at its timeout."""

from contextlib import closing, contextmanager

import pytest
from django.db import IntegrityError, OperationalError, connections, transaction

from django_mqlite.sqlite3.connection import (
    LONGEST_INTERVAL,
    RAMP,
    SHORTEST_INTERVAL,
    retry_interval,
)
from django_mqlite.sqlite3.driver import Database
from tests.support.engines import Running, execute
from tests.support.waiting import wait_until

INSERT = "INSERT INTO t VALUES (%s)"


@contextmanager
def another_writes(path, begin="BEGIN IMMEDIATE"):
    """The write lock is taken, by a connection that does not queue up, as another process's."""
    with closing(Database.connect(path, isolation_level=None)) as other:
        other.execute(begin)
        yield other


def name_of(connection):
    return connection.settings_dict["NAME"]


def stored(connection):
    return [value for (value,) in execute(connection, "SELECT a FROM t ORDER BY a")]


def in_transaction(value):
    with transaction.atomic("engine"):
        execute(connections["engine"], INSERT, [value])


def by_itself(value):
    execute(connections["engine"], INSERT, [value])


def behind_a_comment(value):
    execute(connections["engine"], f"/* who */ {INSERT}", [value])


def many(value):
    with connections["engine"].cursor() as cursor:
        cursor.executemany(INSERT, ([each] for each in (value, value + 1)))


def script(value):
    connections["engine"].ensure_connection()
    connections["engine"].connection.executescript(f"INSERT INTO t VALUES ({value});")


def driver(value):
    connections["engine"].ensure_connection()
    connections["engine"].connection.execute("INSERT INTO t VALUES (?)", [value])


def without_autocommit(value):
    connection = connections["engine"]
    connection.set_autocommit(False)
    execute(connection, INSERT, [value])
    connection.commit()
    connection.set_autocommit(True)


def deferred(value):
    connections["engine"].ensure_connection()
    connections["engine"].transaction_mode = None
    with transaction.atomic("engine"):
        execute(connections["engine"], INSERT, [value])


def deferred_with_a_savepoint(value):
    connections["engine"].ensure_connection()
    connections["engine"].transaction_mode = None
    with transaction.atomic("engine"), transaction.atomic("engine"):
        execute(connections["engine"], INSERT, [value])


WAYS = [
    in_transaction,
    by_itself,
    behind_a_comment,
    many,
    script,
    driver,
    without_autocommit,
    deferred,
    deferred_with_a_savepoint,
]


@pytest.mark.parametrize("write", WAYS)
def test_a_writer_waits_for_another_process_and_then_gets_in(engine, write):
    with another_writes(name_of(engine)) as other:
        thread = Running(write, 1)
        wait_until(lambda: engine.connection.writer_queue._inside, "the writer to try")
        assert stored(engine) == []
        other.execute("COMMIT")
        assert thread.end() is None

    assert stored(engine) == ([1, 2] if write is many else [1])


@pytest.mark.parametrize("write", WAYS)
def test_a_writer_waits_for_another_thread_and_then_gets_in(engine, write):
    with transaction.atomic("engine"):
        execute(engine, INSERT, [0])
        thread = Running(write, 1)
        wait_until(lambda: engine.connection.writer_queue._queue, "the writer to queue up")
    assert thread.end() is None

    assert stored(engine) == ([0, 1, 2] if write is many else [0, 1])


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_wait_for_another_process_ends_at_the_timeout(open_database, write, timeout):
    engine = open_database(timeout=timeout)
    execute(engine, "CREATE TABLE t (a)")

    with another_writes(name_of(engine)):
        error = Running(write, 1).end()

    assert isinstance(error, OperationalError | Database.OperationalError)
    assert str(error) == "database is locked"
    assert stored(engine) == []
    assert Running(write, 1).end() is None  # and nobody is in the way afterwards


@pytest.mark.parametrize("write", WAYS)
def test_a_wait_for_another_thread_ends_at_the_timeout(open_database, write):
    engine = open_database(timeout=0.01)
    execute(engine, "CREATE TABLE t (a)")

    with transaction.atomic("engine"):
        error = Running(write, 1).end()

    assert isinstance(error, OperationalError | Database.OperationalError)
    assert str(error) == "database is locked"
    assert Running(write, 1).end() is None


def test_two_threads_that_take_two_databases_in_opposite_order_end_in_that_error(open_database):
    for alias in ("one", "two"):
        execute(open_database(alias, timeout=0.05), "CREATE TABLE t (a)")
    holds = []

    def take(first, second):
        with transaction.atomic(first):
            holds.append(first)
            wait_until(lambda: len(holds) == 2, "the other to hold its first")
            with transaction.atomic(second):
                execute(connections[second], INSERT, [1])

    threads = [Running(take, "one", "two"), Running(take, "two", "one")]
    errors = [thread.end() for thread in threads]

    assert any(isinstance(error, OperationalError) for error in errors)
    assert {str(error) for error in errors if error} == {"database is locked"}


def test_a_thread_that_dies_in_a_transaction_lets_the_next_one_in(engine):
    def die():
        connections["engine"].set_autocommit(False)
        execute(connections["engine"], INSERT, [1])
        del connections["engine"]  # as it goes with the thread

    Running(die).end()

    by_itself(2)
    assert stored(engine) == [2]


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_is_ended_by_hand_lets_the_next_one_in(engine, ending):
    execute(engine, "BEGIN IMMEDIATE")
    execute(engine, INSERT, [1])

    execute(engine, ending)

    assert engine.connection.writer_queue._inside is None
    assert stored(engine) == ([1] if ending == "COMMIT" else [])


def test_a_transaction_that_the_driver_ends_lets_those_in_who_wait(engine):
    with engine.connection:
        execute(engine, "BEGIN IMMEDIATE")
        execute(engine, INSERT, [1])
        thread = Running(by_itself, 2)
        wait_until(lambda: engine.connection.writer_queue._queue, "the writer to queue up")

    assert thread.end() is None
    assert stored(engine) == [1, 2]


def test_a_transaction_may_be_ended_in_another_thread(engine):
    engine.inc_thread_sharing()
    engine.set_autocommit(False)
    execute(engine, INSERT, [1])

    assert Running(engine.commit).end() is None
    engine.set_autocommit(True)
    engine.dec_thread_sharing()

    assert Running(by_itself, 2).end() is None
    assert stored(engine) == [1, 2]


def test_a_transaction_that_has_read_before_another_wrote_fails_at_once(engine):
    """It could wait for ever: only the whole of it can be repeated."""
    engine.transaction_mode = None

    with pytest.raises(OperationalError, match="database is locked"), transaction.atomic("engine"):
        stored(engine)
        with another_writes(name_of(engine)) as other:
            other.execute("INSERT INTO t VALUES (7)")
            other.execute("COMMIT")
        execute(engine, INSERT, [1])

    assert stored(engine) == [7]


def test_a_transaction_that_has_read_does_not_wait_for_a_writer(engine):
    engine.transaction_mode = None

    with (
        pytest.raises(OperationalError, match="database is locked"),
        another_writes(name_of(engine)),
        transaction.atomic("engine"),
    ):
        stored(engine)
        execute(engine, INSERT, [1])


def test_readers_wait_for_nobody(engine):
    with transaction.atomic("engine"):
        execute(engine, INSERT, [1])

        def read():
            assert stored(connections["engine"]) == []

        assert Running(read).end() is None


def test_without_wal_a_commit_waits_for_readers(open_database):
    engine = open_database(timeout=60, journal_mode="DELETE")
    execute(engine, "CREATE TABLE t (a)")

    with closing(Database.connect(name_of(engine), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        thread = Running(in_transaction, 1)
        wait_until(lambda: (f := name_of(engine)).with_name(f"{f.name}-journal").exists(), "it")
        reader.execute("COMMIT")
    assert thread.end() is None

    assert stored(engine) == [1]


def test_an_error_in_the_middle_of_many_rows_is_told_and_nobody_is_in_the_way(engine):
    execute(engine, "CREATE TABLE u (a UNIQUE)")

    with pytest.raises(IntegrityError), engine.cursor() as cursor:
        cursor.executemany("INSERT INTO u VALUES (%s)", [[1], [1], [2]])

    assert execute(engine, "SELECT a FROM u") == [(1,)]
    assert engine.connection.writer_queue._inside is None
    assert execute(engine, "PRAGMA busy_timeout") == [(0,)]


def test_a_checkpoint_waits_for_readers_as_before(engine):
    with closing(Database.connect(name_of(engine), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        execute(engine, INSERT, [1])
        asked = []
        thread = Running(
            lambda: asked.extend(execute(connections["engine"], "PRAGMA wal_checkpoint(TRUNCATE)"))
        )
        reader.execute("COMMIT")
    thread.end()

    assert asked[0][0] == 0  # not busy


def test_memory_that_is_shared_by_threads_is_written_in_turn(open_database):
    memory = open_database(name="file:engine?mode=memory&cache=shared", timeout=60)
    execute(memory, "CREATE TABLE t (a)")

    with transaction.atomic("engine"):
        execute(memory, INSERT, [0])
        thread = Running(in_transaction, 1)
        wait_until(lambda: memory.connection.writer_queue._queue, "the writer to queue up")
    assert thread.end() is None

    assert stored(memory) == [0, 1]


def test_a_connection_that_threads_share_outlives_the_thread_that_opened_it(engine):
    kept = []

    def open_and_share():
        connection = connections["engine"]
        connection.inc_thread_sharing()
        execute(connection, INSERT, [1])
        kept.append(connection)
        del connections["engine"]

    Running(open_and_share).end()

    assert stored(kept[0]) == [1]
    kept[0].close()


def own_wait(connection):
    return execute(connection, "PRAGMA busy_timeout")[0][0]


@pytest.mark.parametrize(
    ("mode", "expected"), [("WAL", 0), ("DELETE", 60_000), ("TRUNCATE", 60_000)]
)
def test_where_commits_wait_for_readers_sqlite_waits_itself(open_database, mode, expected):
    """The commit of a RETURNING statement is at its last row, where nobody can try again."""
    connection = open_database(timeout=60, journal_mode=mode)
    execute(connection, "CREATE TABLE t (a)")

    assert own_wait(connection) == expected
    with connection.cursor() as cursor:
        cursor.executemany(INSERT, [(1,), (2,)])
    assert own_wait(connection) == expected


def test_whoever_has_waited_longest_tries_most_often_and_never_without_a_rest():
    waits = [0, RAMP / 2, RAMP, 100 * RAMP]
    intervals = [[retry_interval(waited) for _ in range(1_000)] for waited in waits]

    young, grown, after_ramp, ancient = (sum(each) / len(each) for each in intervals)
    assert young > grown > after_ramp > 0
    assert min(intervals[0]) > max(intervals[2] + intervals[3])
    assert all(0 < interval < 2 * LONGEST_INTERVAL for interval in [*intervals[0], *intervals[3]])
    assert abs(after_ramp - ancient) < SHORTEST_INTERVAL / 2
    assert len(set(intervals[3])) > 1, "writers in step would meet again and again"
