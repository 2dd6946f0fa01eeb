"""Open a write transaction, or join the caller's.

The engine (`django_mqlite.sqlite3` or Django's own) decides how a writer waits for the lock. This
module makes sure that the lock is held before the time is read.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.db import connections, transaction

from . import timing
from .guard import run_guarded
from .schema import check_schema
from .store import sqlite as store


@contextmanager
def write_transaction(using: str) -> Iterator[tuple[Any, int]]:
    """Open a write transaction, or a savepoint in the caller's transaction.

    Yields the connection and the time in epoch milliseconds. The write lock is held from the first
    line of the block, and the time is read under it. A savepoint is durable with the caller's
    commit and undone by its rollback. Raises SchemaVersionMismatch if the tables are newer than
    this code.
    """
    connection: Any = connections[using]
    check_schema(connection)
    is_outermost = connection.get_autocommit()  # connects, which sets the mode
    mode = connection.transaction_mode
    if is_outermost:
        connection.transaction_mode = "IMMEDIATE"  # whatever the project has configured
    elif not _holds_write_lock(connection):
        store.base.ACQUIRE_WRITE_LOCK.run(connection)
    try:
        with transaction.atomic(using):
            yield connection, timing.now_ms()
    finally:
        connection.transaction_mode = mode


@contextmanager
def group_commit(using: str) -> Iterator[None]:
    """Open a write transaction for verbs of several clients, who are answered after its commit.

    claim() is allowed in it, because no client has a lease before it is committed.
    """
    with write_transaction(using) as (connection, _):
        connection.is_group_commit = True
        try:
            yield
        finally:
            connection.is_group_commit = False


@contextmanager
def write_lock(using: str) -> Iterator[tuple[Any, int]]:
    """Hold the write lock for one statement, which is atomic and therefore needs no savepoint.

    Yields the same as write_transaction(), without the cost of Django's atomic(), for the one verb
    where that cost is measurable. Do not use on_commit() in the block.
    """
    connection: Any = connections[using]
    check_schema(connection)
    if not connection.get_autocommit():
        if not _holds_write_lock(connection):
            store.base.ACQUIRE_WRITE_LOCK.run(connection)
        yield connection, timing.now_ms()
        return
    if connection.connection.in_transaction:  # a TestCase's, in which drain() runs in autocommit
        with transaction.atomic(using):
            yield connection, timing.now_ms()
        return
    try:
        store.base.BEGIN.run(connection)
        yield connection, timing.now_ms()
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _holds_write_lock(connection: Any) -> bool:
    """Return whether the caller's transaction began as IMMEDIATE and so holds the write lock.

    With autocommit off, the driver begins the transaction, and not as IMMEDIATE.
    """
    begun_by_django = connection.connection.isolation_level is None
    return begun_by_django and connection.transaction_mode in ("IMMEDIATE", "EXCLUSIVE")


def after_commit(using: str, callback: Callable[[], object]) -> None:
    """Call `callback` once the transaction is committed; log any exception.

    A caller that has turned autocommit off commits without Django's knowledge. Then `callback` is
    never called, because calling it before the commit could report something that did not happen.
    Workers find the new messages when they poll.
    """
    connection = connections[using]
    if connection.in_atomic_block or connection.get_autocommit():
        connection.on_commit(partial(run_guarded, callback), robust=True)


MAX_PAUSE = 0.05
"""Seconds."""


@contextmanager
def yield_to_other_writers(using: str) -> Iterator[None]:
    """Run a batch, then pause as long as it took, so that other writers get the lock.

    On Django's engine a waiting writer sleeps up to 0.1 s between attempts, and would rarely
    find the lock free between batches without a pause. Inside the caller's transaction there is no
    pause, because the lock stays held.
    """
    started = time.monotonic()
    yield
    if connections[using].get_autocommit():
        time.sleep(min(time.monotonic() - started, MAX_PAUSE))


def in_callers_transaction(using: str) -> bool:
    """Return whether the caller has a transaction open, not counting a TestCase's.

    A group commit does not count either.
    """
    connection: Any = connections[using]
    if getattr(connection, "is_group_commit", False):
        return False
    if connection.in_atomic_block:
        # Django's durable=True uses the same attribute to ignore a TestCase's transactions.
        return any(not block._from_testcase for block in connection.atomic_blocks)  # noqa: SLF001
    return not connection.get_autocommit()
