"""Connections in autocommit, as in a worker, even inside the transaction of a TestCase."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper

SAVEPOINT = "mqlite_worker"


@contextmanager
def worker_connections() -> Iterator[list[str]]:
    """Replace the thread's SQLite connections with wrappers in autocommit, as in a worker.

    Each wrapper shares the driver's connection of the wrapper that it replaces, and starts without
    callbacks and without a broken transaction. Within the transaction of a TestCase, its outermost
    transactions are savepoints. At the end of the block its cursors are closed, because one with
    unread rows would prevent commits. A transaction that is open then is rolled back, and the alias
    of its database is added to the list that the block received.
    """
    left_open: list[str] = []
    replaced = [outer for outer in connections.all(initialized_only=True) if _is_ready(outer)]
    inner = [_wrapper(outer) for outer in replaced]
    for connection in inner:
        connections[connection.alias] = connection
    try:
        yield left_open
    finally:
        for outer, connection in zip(replaced, inner, strict=True):
            connections[outer.alias] = outer
            if connection.is_open:
                left_open.append(outer.alias)
            connection.end()


def _is_ready(connection: Any) -> bool:
    """Return True for a SQLite connection in autocommit or in the transaction of a TestCase."""
    if not isinstance(connection, DatabaseWrapper) or connection.connection is None:
        return False
    return connection.in_atomic_block or connection.autocommit


class _Shared(DatabaseWrapper):
    """A wrapper that shares the driver's connection with another wrapper, which closes it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cursors: WeakSet[Any] = WeakSet()

    def create_cursor(self, name: Any = None) -> Any:
        """Return a cursor, which is closed with this wrapper."""
        cursor = super().create_cursor(name)
        self._cursors.add(cursor)
        return cursor

    @property
    def is_open(self) -> bool:
        """True while a transaction is open."""
        return bool(self.connection.in_transaction)

    def close(self: Any) -> None:
        """Roll back the open transaction, but keep the driver's connection open."""
        if self.is_open:
            self._rollback()
            self.needs_rollback = self.in_atomic_block

    def end(self: Any) -> None:
        """Close the cursors, roll back the open transaction, and turn autocommit on again."""
        for cursor in self._cursors:
            cursor.close()
        if self.is_open:
            self._rollback()
        if not self.autocommit:
            self._set_autocommit(True)


class _Nested(_Shared):
    """A shared wrapper within an open transaction, with a savepoint as its outermost transaction.

    The savepoint exists exactly while autocommit is off, so a commit creates the next one.
    """

    @property
    def is_open(self) -> bool:
        return not self.autocommit

    def _start_transaction_under_autocommit(self) -> None:
        self._set_autocommit(False)

    def _set_autocommit(self, autocommit: bool) -> None:
        if autocommit and not self.autocommit:
            self._run("RELEASE")
        elif self.autocommit and not autocommit:
            self._run("SAVEPOINT")

    def _commit(self) -> None:
        if not self.autocommit:
            self._run("RELEASE")
            self._run("SAVEPOINT")

    def _rollback(self) -> None:
        if not self.autocommit:
            self._run("ROLLBACK TO")

    def _run(self, verb: str) -> None:
        with self.wrap_database_errors:
            self.connection.execute(f"{verb} {SAVEPOINT}")


def _wrapper(outer: Any) -> Any:
    """Return a wrapper for a wrapper of the engine, or for one of these in a handler of drain()."""
    engine = getattr(outer, "engine", type(outer))
    kind = _Nested if outer.in_atomic_block or isinstance(outer, _Nested) else _Shared
    cls: Any = type(kind.__name__, (kind, engine), {"engine": engine})
    wrapper = cls(outer.settings_dict, outer.alias)
    shared = ("connection", "transaction_mode", "execute_wrappers", "queries_log")
    for name in (*shared, "force_debug_cursor"):
        setattr(wrapper, name, getattr(outer, name))
    wrapper.autocommit = True
    return wrapper
