"""The connections of a test as a worker has them: in autocommit, whatever the test has open."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper

SAVEPOINT = "mqlite_worker"


@contextmanager
def worker_connections() -> Iterator[list[str]]:
    """Replace the thread's SQLite connections by wrappers that a worker would find.

    Each shares the driver's connection of the one that it replaces and begins in autocommit, with
    neither callbacks nor a broken transaction. Within the transaction of a TestCase its outermost
    transactions are savepoints. A transaction that is open at the end of the block is rolled back;
    the list that the block was given then has the alias of its database.
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
    """Check for a SQLite connection in autocommit or in the transaction of a TestCase."""
    if not isinstance(connection, DatabaseWrapper) or connection.connection is None:
        return False
    return connection.in_atomic_block or connection.autocommit


class _Shared(DatabaseWrapper):
    """A wrapper that leaves the driver's connection to another wrapper."""

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.connection.in_transaction)

    def close(self: Any) -> None:
        """Roll back the open transaction; the driver's connection stays."""
        if self.is_open:
            self._rollback()
            self.needs_rollback = self.in_atomic_block

    def end(self: Any) -> None:
        """Roll back what is open, and turn autocommit on again."""
        if self.is_open:
            self._rollback()
        if not self.autocommit:
            self._set_autocommit(True)


class _Nested(_Shared):
    """The same within an open transaction, where a savepoint stands for the outermost one.

    The savepoint exists exactly while autocommit is off, so that a commit begins the next one.
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
    kind = _Nested if outer.in_atomic_block else _Shared
    wrapper: Any = type(kind.__name__, (kind, type(outer)), {})(outer.settings_dict, outer.alias)
    shared = ("connection", "transaction_mode", "execute_wrappers", "queries_log")
    for name in (*shared, "force_debug_cursor"):
        setattr(wrapper, name, getattr(outer, name))
    wrapper.autocommit = True
    return wrapper
