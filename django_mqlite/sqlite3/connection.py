"""The driver's connections and cursors, with a fair wait for the write lock.

SQLite's own wait sleeps longer and longer between attempts, up to 0.1 s, so it loses to newer
writers. Here, a thread first waits for its turn among the threads of its process. It then retries
more often the longer it has waited. SQLite's own wait is turned off.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from random import uniform
from typing import Any, TypeVar

from .driver import Database, compiled_limit
from .writer_queue import writer_queue_for

T = TypeVar("T")

LONGEST_INTERVAL, SHORTEST_INTERVAL, RAMP = 0.003, 0.0005, 0.04
"""Average seconds between attempts, at first and after `RAMP` seconds of waiting.

Each attempt takes processor time from the current writer. Eight writers that all retry every 0.2 to
1 ms lose a fifth of their commits, so only writers that have waited long retry that often.
"""

SQLITE_BUSY = 5
SQLITE_BUSY_SNAPSHOT = 517
"""Another connection has written since this transaction read; retry the whole transaction."""

# These statements need the write lock, so they wait for their turn first. A statement that is not
# recognized, because of a leading comment for example, waits only if the lock is held.
WRITE = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|BEGIN\s+(IMMEDIATE|EXCLUSIVE))\b",
    re.IGNORECASE,
)
# These neither read nor write, so a transaction that has executed nothing else can still wait.
NEUTRAL = re.compile(r"\s*(SAVEPOINT|RELEASE|ROLLBACK|PRAGMA)\b", re.IGNORECASE)
# A checkpoint waits for readers inside SQLite; without SQLite's own wait it returns busy.
CHECKPOINT = re.compile(r"\s*PRAGMA\s+(\w+\.)?wal_checkpoint\b", re.IGNORECASE)


class Connection(Database.Connection):  # type: ignore[misc]
    """A connection that waits up to `timeout` seconds for the write lock.

    It then raises OperationalError, "database is locked".
    """

    def __init__(self, database: Any, *, timeout: float = 5.0, **options: Any) -> None:
        self.timeout = timeout
        self.writer_queue = writer_queue_for(database)
        self.is_waiting = False
        self._usual_busy_timeout = 0.0
        self.may_wait = False
        """True while the open transaction has neither read nor written, so it can still wait."""
        super().__init__(database, timeout=0, **options)

    @property
    def is_writing(self) -> bool:
        """True while a transaction is open or the connection is waiting for one."""
        try:
            return self.is_waiting or bool(self.in_transaction)
        except Database.ProgrammingError:  # closed
            return False

    if not hasattr(Database.Connection, "getlimit"):  # missing in pysqlite3 0.6, used by Django

        def getlimit(self, category: int) -> int:
            return compiled_limit(category)

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or Cursor)

    def execute(self, sql: str, *parameters: Any) -> Any:
        return self.cursor().execute(sql, *parameters)

    def executemany(self, sql: str, parameters: Iterable[Any]) -> Any:
        return self.cursor().executemany(sql, parameters)

    def executescript(self, script: str) -> Any:
        return self.cursor().executescript(script)

    def commit(self) -> None:
        """Commit; without WAL this may have to wait for readers."""
        try:
            self._retry_until(time.monotonic() + self.timeout, super().commit)
        finally:
            self.leave_if_ended()

    def rollback(self) -> None:
        try:
            super().rollback()
        finally:
            self.leave_if_ended()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.writer_queue.leave(self)

    def leave_if_ended(self) -> None:
        """Give the turn to the next writer, unless a transaction is still open."""
        if not self.in_transaction:
            self.may_wait = False
            self.writer_queue.leave(self)

    def run_as_writer(self, operation: Callable[[], T], *, once: bool = False) -> T:
        """Call `operation` when it is this connection's turn to write; with `once`, never retry.

        A transaction that `operation` begins keeps the turn until it ends.
        """
        deadline = time.monotonic() + self.timeout
        self.is_waiting = True
        try:
            if not self.writer_queue.enter(self, deadline=deadline):
                raise _locked()
            result = self._retry_until(0 if once else deadline, operation)
        except BaseException:
            self.is_waiting = False
            self.writer_queue.leave(self)
            raise
        self.is_waiting = False
        if not self.in_transaction:
            self.writer_queue.leave(self)
        return result

    def _retry_until(self, deadline: float, operation: Callable[[], T]) -> T:
        started = time.monotonic()
        while True:
            was_open = self.in_transaction
            try:
                return operation()
            except Database.OperationalError as error:
                rolled_back = was_open and not self.in_transaction
                if rolled_back or not is_busy(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(retry_interval(time.monotonic() - started))

    @contextmanager
    def with_busy_timeout(self) -> Iterator[None]:
        """Turn on SQLite's own wait for statements that cannot be repeated."""
        self.set_busy_timeout(self.timeout)
        try:
            yield
        finally:
            self.set_busy_timeout(self._usual_busy_timeout)

    def keep_busy_timeout(self) -> None:
        """Keep SQLite's own wait turned on: without WAL, some commits cannot be retried here."""
        self._usual_busy_timeout = self.timeout
        self.set_busy_timeout(self.timeout)

    def set_busy_timeout(self, seconds: float) -> None:
        """Set the seconds that SQLite itself waits before it returns SQLITE_BUSY."""
        super().execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}").fetchall()


class Cursor(Database.Cursor):  # type: ignore[misc]
    """A cursor that waits for the write lock before a statement that needs it."""

    def execute(self, sql: str, *parameters: Any) -> Any:
        connection = self.connection
        if connection.in_transaction:
            return self._execute_inside(sql, *parameters)
        run = super().execute
        if WRITE.match(sql):
            return connection.run_as_writer(partial(run, sql, *parameters))
        if CHECKPOINT.match(sql):
            with connection.with_busy_timeout():
                return run(sql, *parameters)
        try:
            result = run(sql, *parameters)
        except Database.OperationalError as error:
            if not is_busy(error):
                raise
            return connection.run_as_writer(partial(run, sql, *parameters))
        connection.may_wait = connection.in_transaction
        return result

    def _execute_inside(self, sql: str, *parameters: Any) -> Any:
        connection = self.connection
        run = super().execute
        try:
            return run(sql, *parameters)
        except Database.OperationalError as error:
            if not (is_busy(error) and connection.may_wait):
                raise
            return connection.run_as_writer(partial(run, sql, *parameters))
        finally:
            if not connection.in_transaction:
                connection.leave_if_ended()
            elif connection.may_wait and not NEUTRAL.match(sql):
                connection.may_wait = False

    def executemany(self, sql: str, parameters: Iterable[Any]) -> Any:
        """Execute without retries: outside a transaction each row is a separate commit."""
        run = partial(super().executemany, sql, parameters)
        if self.connection.in_transaction and not self.connection.may_wait:
            return run()
        return self._run_once(run)

    def executescript(self, script: str) -> Any:
        return self._run_once(partial(super().executescript, script))

    def _run_once(self, run: Callable[[], T]) -> T:
        def wait_inside() -> T:
            with self.connection.with_busy_timeout():
                return run()

        connection: Connection = self.connection
        try:
            return connection.run_as_writer(wait_inside, once=True)
        finally:
            connection.leave_if_ended()


def retry_interval(waited: float) -> float:
    """Return the seconds until the next attempt of a writer that has waited for `waited` seconds.

    The interval is random, so that writers do not collide repeatedly.
    """
    remaining = max(0.0, 1 - waited / RAMP)
    return uniform(0.4, 1.6) * (
        SHORTEST_INTERVAL + (LONGEST_INTERVAL - SHORTEST_INTERVAL) * remaining
    )


def is_busy(error: BaseException) -> bool:
    """Return whether the error means that the lock is held and may be free at the next attempt."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF == SQLITE_BUSY and code != SQLITE_BUSY_SNAPSHOT


def _locked() -> Exception:
    error: Exception = Database.OperationalError("database is locked")
    error.sqlite_errorcode = SQLITE_BUSY  # type: ignore[attr-defined]
    error.sqlite_errorname = "SQLITE_BUSY"  # type: ignore[attr-defined]
    return error
