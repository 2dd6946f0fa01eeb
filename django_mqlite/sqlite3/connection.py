"""The driver's connections and cursors, with a wait for the write lock that is fair.

SQLite's own wait sleeps longer and longer between its tries, up to 0.1 s, and so loses to everybody
who has come later. Here a thread first waits for its turn among the threads of its process, and
then tries more often the longer it has waited; SQLite's wait is off.
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

FIRST_REST, LAST_REST, AGE = 0.003, 0.0005, 0.04
"""Seconds, on average, between two tries: of one who has just come, and of one who is of age.

Each try takes the processor from whoever writes. With eight writers that all try every 0.2 to 1 ms
a fifth of their commits is gone, so only those try so often who have waited long.
"""

SQLITE_BUSY = 5
SQLITE_BUSY_SNAPSHOT = 517
"""Somebody has written since the transaction read: only the whole transaction can be repeated."""

# A statement that needs the write lock takes its turn first. One that is not recognised, for the
# comment before it, say, tries at once and takes its turn when it finds the lock taken.
WRITE = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|BEGIN\s+(IMMEDIATE|EXCLUSIVE))\b",
    re.IGNORECASE,
)
# Neither reads nor writes, so a transaction that has done nothing else can still wait.
NEUTRAL = re.compile(r"\s*(SAVEPOINT|RELEASE|ROLLBACK|PRAGMA)\b", re.IGNORECASE)
# Waits inside SQLite for readers to end; without patience it would answer that it was busy.
CHECKPOINT = re.compile(r"\s*PRAGMA\s+(\w+\.)?wal_checkpoint\b", re.IGNORECASE)


class Connection(Database.Connection):  # type: ignore[misc]
    """Waits for the write lock up to `timeout` seconds, and then raises "database is locked"."""

    def __init__(self, database: Any, *, timeout: float = 5.0, **options: Any) -> None:
        self.patience = timeout
        self.turnstile = writer_queue_for(database)
        self.is_trying = False
        self._usual_wait = 0.0
        self.may_wait = False
        """Whether the open transaction has neither read nor written, so that it can still wait."""
        super().__init__(database, timeout=0, **options)

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is open, or the connection is waiting for one."""
        try:
            return self.is_trying or bool(self.in_transaction)
        except Database.ProgrammingError:  # closed
            return False

    if not hasattr(Database.Connection, "getlimit"):  # pysqlite3 0.6 has none, and Django asks

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
            self._try_until(time.monotonic() + self.patience, super().commit)
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
            self.turnstile.leave(self)

    def leave_if_ended(self) -> None:
        """Let the next writer in, unless a transaction is still open."""
        if not self.in_transaction:
            self.may_wait = False
            self.turnstile.leave(self)

    def admitted(self, act: Callable[[], T], *, once: bool = False) -> T:
        """Do what needs the write lock when it is this connection's turn; `once`: try only once.

        A transaction that it begins keeps the turn until it ends.
        """
        deadline = time.monotonic() + self.patience
        self.is_trying = True
        try:
            if not self.turnstile.enter(self, deadline=deadline):
                raise _locked()
            done = self._try_until(0 if once else deadline, act)
        except BaseException:
            self.is_trying = False
            self.turnstile.leave(self)
            raise
        self.is_trying = False
        if not self.in_transaction:
            self.turnstile.leave(self)
        return done

    def _try_until(self, deadline: float, act: Callable[[], T]) -> T:
        began = time.monotonic()
        while True:
            was_open = self.in_transaction
            try:
                return act()
            except Database.OperationalError as error:
                undone = was_open and not self.in_transaction
                if undone or not is_busy(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(rest(time.monotonic() - began))

    @contextmanager
    def own_wait(self) -> Iterator[None]:
        """SQLite's own wait inside, for what cannot be tried twice."""
        self.set_own_wait(self.patience)
        try:
            yield
        finally:
            self.set_own_wait(self._usual_wait)

    def keep_own_wait(self) -> None:
        """SQLite's own wait from now on: what is not in WAL mode commits where nobody can retry."""
        self._usual_wait = self.patience
        self.set_own_wait(self.patience)

    def set_own_wait(self, seconds: float) -> None:
        """Set how long SQLite itself waits before it reports that it is busy."""
        super().execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}").fetchall()


class Cursor(Database.Cursor):  # type: ignore[misc]
    """Runs a statement when the write lock can be had, if it needs it."""

    def execute(self, sql: str, *parameters: Any) -> Any:
        connection = self.connection
        if connection.in_transaction:
            return self._execute_inside(sql, *parameters)
        run = super().execute
        if WRITE.match(sql):
            return connection.admitted(partial(run, sql, *parameters))
        if CHECKPOINT.match(sql):
            with connection.own_wait():
                return run(sql, *parameters)
        try:
            done = run(sql, *parameters)
        except Database.OperationalError as error:
            if not is_busy(error):
                raise
            return connection.admitted(partial(run, sql, *parameters))
        connection.may_wait = connection.in_transaction
        return done

    def _execute_inside(self, sql: str, *parameters: Any) -> Any:
        connection = self.connection
        run = super().execute
        try:
            return run(sql, *parameters)
        except Database.OperationalError as error:
            if not (is_busy(error) and connection.may_wait):
                raise
            return connection.admitted(partial(run, sql, *parameters))
        finally:
            if not connection.in_transaction:
                connection.leave_if_ended()
            elif connection.may_wait and not NEUTRAL.match(sql):
                connection.may_wait = False

    def executemany(self, sql: str, parameters: Iterable[Any]) -> Any:
        """Outside a transaction each row is a commit of its own, so there is no second try."""
        run = partial(super().executemany, sql, parameters)
        if self.connection.in_transaction and not self.connection.may_wait:
            return run()
        return self._in_one_go(run)

    def executescript(self, script: str) -> Any:
        return self._in_one_go(partial(super().executescript, script))

    def _in_one_go(self, run: Callable[[], T]) -> T:
        def wait_inside() -> T:
            with self.connection.own_wait():
                return run()

        connection: Connection = self.connection
        try:
            return connection.admitted(wait_inside, once=True)
        finally:
            connection.leave_if_ended()


def rest(waited: float) -> float:
    """Seconds until the next try of one who has tried for `waited` seconds.

    By chance: writers in step would meet again and again.
    """
    young = max(0.0, 1 - waited / AGE)
    return uniform(0.4, 1.6) * (LAST_REST + (FIRST_REST - LAST_REST) * young)


def is_busy(error: BaseException) -> bool:
    """Return whether the error means that the lock is held and may be free at the next attempt."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF == SQLITE_BUSY and code != SQLITE_BUSY_SNAPSHOT


def _locked() -> Exception:
    error: Exception = Database.OperationalError("database is locked")
    error.sqlite_errorcode = SQLITE_BUSY  # type: ignore[attr-defined]
    error.sqlite_errorname = "SQLITE_BUSY"  # type: ignore[attr-defined]
    return error
