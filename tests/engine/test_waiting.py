"""Waiting for the write lock: writers get it in turn, or raise Django's error at the timeout."""

from contextlib import closing, contextmanager
from statistics import mean

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
def write_lock_of_another_process(path, begin="BEGIN IMMEDIATE"):
    """Hold the write lock with a connection outside the writer queue, like another process."""
    with closing(Database.connect(path, isolation_level=None)) as other:
        other.execute(begin)
        yield other


def path_of(connection):
    return connection.settings_dict["NAME"]


def stored(connection):
    return [value for (value,) in execute(connection, "SELECT a FROM t ORDER BY a")]


def in_transaction(value):
    with transaction.atomic("engine"):
        execute(connections["engine"], INSERT, [value])


def single_statement(value):
    execute(connections["engine"], INSERT, [value])


def after_a_comment(value):
    execute(connections["engine"], f"/* comment */ {INSERT}", [value])


def many_rows(value):
    with connections["engine"].cursor() as cursor:
        cursor.executemany(INSERT, [[value], [value + 1]])


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
    in_transaction(value)


def deferred_with_a_savepoint(value):
    connections["engine"].ensure_connection()
    connections["engine"].transaction_mode = None
    with transaction.atomic("engine"):
        in_transaction(value)


WAYS = [
    in_transaction,
    single_statement,
    after_a_comment,
    many_rows,
    script,
    driver,
    without_autocommit,
    deferred,
    deferred_with_a_savepoint,
]


def wait_until_queued(connection):
    wait_until(lambda: connection.connection.writer_queue._queue, "the writer to queue up")


def lock_held_by(holder, connection):
    """Hold the write lock in another process or in this thread."""
    if holder == "thread":
        return transaction.atomic("engine")
    return write_lock_of_another_process(path_of(connection))


def values_of(write):
    return [1, 2] if write is many_rows else [1]


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("holder", ["process", "thread"])
def test_writer_waits_for_the_write_lock(engine, write, holder):
    queue = engine.connection.writer_queue
    with lock_held_by(holder, engine):
        thread = Running(write, 1)
        is_waiting = (lambda: queue._queue) if holder == "thread" else (lambda: queue._current)
        wait_until(is_waiting, "the writer to wait")
        assert stored(engine) == []
    assert thread.end() is None

    assert stored(engine) == values_of(write)


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("timeout", [0, 0.01])
@pytest.mark.parametrize("holder", ["process", "thread"])
def test_wait_for_the_write_lock_ends_at_the_timeout(open_database, write, timeout, holder):
    engine = open_database(timeout=timeout)
    execute(engine, "CREATE TABLE t (a)")

    with lock_held_by(holder, engine):
        error = Running(write, 1).end()

    assert isinstance(error, OperationalError | Database.OperationalError)
    assert str(error) == "database is locked"
    assert stored(engine) == []
    assert Running(write, 1).end() is None, "the writer that gave up is still in the queue"


def test_deadlock_over_two_databases_ends_at_the_timeout(open_database):
    for alias in ("first", "second"):
        execute(open_database(alias, timeout=0.05), "CREATE TABLE t (a)")
    holds = []

    def take(first, second):
        with transaction.atomic(first):
            holds.append(first)
            wait_until(lambda: len(holds) == 2, "the other thread to hold its first lock")
            with transaction.atomic(second):
                execute(connections[second], INSERT, [1])

    threads = [Running(take, "first", "second"), Running(take, "second", "first")]
    errors = [thread.end() for thread in threads]

    assert any(isinstance(error, OperationalError) for error in errors)
    assert {str(error) for error in errors if error} == {"database is locked"}


def end_with_sql(statement):
    def end(engine):
        execute(engine, "BEGIN IMMEDIATE")
        execute(engine, INSERT, [1])
        execute(engine, statement)

    return end


def end_with_the_driver(engine):
    with engine.connection:
        execute(engine, "BEGIN IMMEDIATE")
        execute(engine, INSERT, [1])


def end_in_another_thread(engine):
    engine.inc_thread_sharing()
    engine.set_autocommit(False)
    execute(engine, INSERT, [1])
    assert Running(engine.commit).end() is None
    engine.set_autocommit(True)
    engine.dec_thread_sharing()


def end_with_the_thread(engine):
    def die():
        connections["engine"].set_autocommit(False)
        execute(connections["engine"], INSERT, [1])
        del connections["engine"]  # like the end of the thread

    Running(die).end()


def fail_in_executemany(engine):
    execute(engine, "CREATE UNIQUE INDEX u ON t (a)")
    with pytest.raises(IntegrityError), engine.cursor() as cursor:
        cursor.executemany(INSERT, [[1], [1], [2]])
    assert execute(engine, "PRAGMA busy_timeout") == [(0,)]


@pytest.mark.parametrize(
    ("end", "values"),
    [
        (end_with_sql("COMMIT"), [1, 2]),
        (end_with_sql("ROLLBACK"), [2]),
        (end_with_the_driver, [1, 2]),
        (end_in_another_thread, [1, 2]),
        (end_with_the_thread, [2]),
        (fail_in_executemany, [1, 2]),
    ],
    ids=["COMMIT", "ROLLBACK", "driver", "another thread", "thread dies", "executemany fails"],
)
def test_transaction_that_ended_leaves_the_writer_queue(engine, end, values):
    end(engine)

    assert Running(single_statement, 2).end() is None
    assert stored(engine) == values


def test_deferred_transaction_with_a_stale_read_fails_at_once(engine):
    """Waiting cannot help: only the whole transaction can be repeated."""
    engine.transaction_mode = None

    with pytest.raises(OperationalError, match="database is locked"), transaction.atomic("engine"):
        stored(engine)
        with write_lock_of_another_process(path_of(engine)) as other:
            other.execute("INSERT INTO t VALUES (7)")
            other.execute("COMMIT")
        execute(engine, INSERT, [1])

    assert stored(engine) == [7]


def test_deferred_transaction_with_a_read_does_not_wait(engine):
    engine.transaction_mode = None

    with (
        pytest.raises(OperationalError, match="database is locked"),
        write_lock_of_another_process(path_of(engine)),
        transaction.atomic("engine"),
    ):
        stored(engine)
        execute(engine, INSERT, [1])


def test_reader_does_not_wait_for_a_writer(engine):
    with transaction.atomic("engine"):
        execute(engine, INSERT, [1])

        def read():
            assert stored(connections["engine"]) == []

        assert Running(read).end() is None


def test_commit_without_wal_waits_for_readers(open_database):
    engine = open_database(timeout=60, journal_mode="DELETE")
    execute(engine, "CREATE TABLE t (a)")

    with closing(Database.connect(path_of(engine), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        thread = Running(in_transaction, 1)
        journal = path_of(engine).with_name(f"{path_of(engine).name}-journal")
        wait_until(journal.exists, "the writer to start")
        reader.execute("COMMIT")
    assert thread.end() is None

    assert stored(engine) == [1]


def test_checkpoint_waits_for_readers(engine):
    with closing(Database.connect(path_of(engine), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        execute(engine, INSERT, [1])
        rows = []
        thread = Running(
            lambda: rows.extend(execute(connections["engine"], "PRAGMA wal_checkpoint(TRUNCATE)"))
        )
        reader.execute("COMMIT")
    thread.end()

    assert rows[0][0] == 0, "the checkpoint was busy"


def test_threads_write_to_shared_memory_in_turn(open_database):
    memory = open_database(name="file:engine?mode=memory&cache=shared", timeout=60)
    execute(memory, "CREATE TABLE t (a)")

    with transaction.atomic("engine"):
        execute(memory, INSERT, [0])
        thread = Running(in_transaction, 1)
        wait_until_queued(memory)
    assert thread.end() is None

    assert stored(memory) == [0, 1]


def test_shared_connection_outlives_its_thread(engine):
    shared = []

    def open_and_share():
        connection = connections["engine"]
        connection.inc_thread_sharing()
        execute(connection, INSERT, [1])
        shared.append(connection)
        del connections["engine"]

    Running(open_and_share).end()

    assert stored(shared[0]) == [1]
    shared[0].close()


def busy_timeout(connection):
    return execute(connection, "PRAGMA busy_timeout")[0][0]


@pytest.mark.parametrize(
    ("mode", "expected"), [("WAL", 0), ("DELETE", 60_000), ("TRUNCATE", 60_000)]
)
def test_busy_timeout_is_set_only_without_wal(open_database, mode, expected):
    """A RETURNING statement commits at its last row, where the engine cannot retry."""
    connection = open_database(timeout=60, journal_mode=mode)
    execute(connection, "CREATE TABLE t (a)")

    assert busy_timeout(connection) == expected
    with connection.cursor() as cursor:
        cursor.executemany(INSERT, [(1,), (2,)])
    assert busy_timeout(connection) == expected


def test_retry_interval_shrinks_with_the_time_waited():
    waits = [0, RAMP / 2, RAMP, 100 * RAMP]
    intervals = [[retry_interval(waited) for _ in range(1_000)] for waited in waits]

    young, grown, after_ramp, ancient = map(mean, intervals)
    assert young > grown > after_ramp > 0
    assert min(intervals[0]) > max(intervals[2] + intervals[3])
    assert all(0 < interval < 2 * LONGEST_INTERVAL for interval in [*intervals[0], *intervals[3]])
    assert abs(after_ramp - ancient) < SHORTEST_INTERVAL / 2
    assert len(set(intervals[3])) > 1, "writers with equal intervals would collide each time"
