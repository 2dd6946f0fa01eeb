"""Checks before a worker starts, and watchdogs over its parent, its memory and its files."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import psutil
from django.db import Error, connections

from ..doorbell import database_path, sidecar
from ..exceptions import MqliteError, QueueNotFound
from ..guard import get_logger
from ..handlers import Handler, queues_of_kinds
from ..models import Queue
from ..paths import anchored
from ..schema import check_schema, schema_differences
from ..store import sqlite as store
from ..transactions import write_transaction
from .database_errors import advice
from .shutdown import Shutdown


class Parent:
    """Noticed when it is gone: a shell that was in between has died, and nobody will stop us.

    A worker that was meant to outlive its parent is told by what it was started with: `nohup`
    ignores SIGHUP, `setsid` makes a session of its own.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._matters = sys.platform != "win32" and not _is_detached()

    @property
    def gone(self) -> bool:
        """Whether the parent of this process has died."""
        return self._matters and os.getppid() != self._pid


def _is_detached() -> bool:
    ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return ignores_hangup or os.getsid(0) == os.getpid()


logger = get_logger("django_mqlite.worker")

CHECK_INTERVAL = 1.0
"""Seconds between two looks."""


class Memory:
    """Watches the resident memory of this process; without a limit it never looks."""

    def __init__(self, limit_mb: int | None) -> None:
        self._limit_mb = limit_mb
        self._process = psutil.Process()
        self._look_at = 0.0
        self._exceeded = False

    @property
    def exceeded(self) -> bool:
        """Whether the process uses too much memory, checked at most once a second."""
        if self._limit_mb is not None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + CHECK_INTERVAL
            used_mb = self._process.memory_info().rss / 2**20
            if used_mb > self._limit_mb and not self._exceeded:
                logger.warning("using %.0f MB of memory, over --max-memory; ending", used_mb)
                self._exceeded = True
        return self._exceeded


SIDECARS = ("-wal", "-shm")

Identity = tuple[int, int]


@contextmanager
def watched(using: str, stop: Shutdown) -> Iterator[None]:
    """Leave the process at once when another file or none has taken the place of one of them.

    SQLite works on with the files that it has open, so whatever is written from then on is lost
    though it was acknowledged. From a thread, because the others may wait for a lock.
    """
    _make_names_absolute()
    path = database_path(using)
    if path is None:
        yield
        return
    files = DatabaseFiles(using, path)
    ended = Event()
    thread = Thread(target=_watch, args=(files, ended, stop), name="mqlite-file", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _make_names_absolute() -> None:
    """A handler may change the directory, and threads connect to a relative NAME later."""
    for connection in connections.all():
        if connection.vendor == "sqlite":
            settings = connection.settings_dict  # that of every thread
            settings["NAME"] = anchored(str(settings["NAME"]))


def _watch(files: "DatabaseFiles", ended: Event, stop: Shutdown) -> None:
    while not ended.wait(CHECK_INTERVAL):
        if gone := files.gone():
            logger.error(
                "%s was replaced or removed; this process ends, to be started on the files that "
                "are there now. While a process uses a database, nothing but SQLite may open, move "
                "or remove its files",
                gone,
            )
            stop.leave(1)  # without closing: SQLite would write the lost log into the file


class DatabaseFiles:
    """The file of the database and SQLite's two beside it, as they were when they were opened.

    They are looked up, never opened: closing one would drop SQLite's locks.
    """

    def __init__(self, using: str, path: Path) -> None:
        with suppress(Error):  # whoever works with it says so
            store.database_file.file_facts(
                connections[using]
            )  # from the first read on they are there, and stay
        files = [path, *(sidecar(path, suffix) for suffix in SIDECARS)]
        self._seen: dict[Path, Identity | None] = dict.fromkeys(files)
        self.gone()

    def gone(self) -> Path | None:
        """The first that is not the file that it was. One that was never there may come yet."""
        for path, before in self._seen.items():
            now = _identity(path)
            if before is None:
                self._seen[path] = now
            elif now != before:
                return path
        return None


def _identity(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class NotReady(MqliteError):
    """The worker cannot start; the message says what to do."""


def check_writable(using: str) -> None:
    """Acquire the write lock once, so that a read-only or locked database fails at startup.

    So does one whose tables are not as their migrations created them: without its triggers an
    ordered message is stored and never delivered.
    """
    try:
        check_schema(connections[using])
        with write_transaction(using) as (connection, _):
            # On a read-only file BEGIN IMMEDIATE alone does not fail.
            store.base.ACQUIRE_WRITE_LOCK.run(connection)
            differences = schema_differences(connection)
    except Error as error:
        raise NotReady(f"Database {using!r} cannot be used: {error}; {advice(error)}.") from error
    if differences:
        raise NotReady(
            f"The queue's tables in database {using!r} are not as their migrations created them: "
            f"{'; '.join(differences)}. Restore a backup, or create what is missing: "
            "`manage.py mqlite doctor` says how."
        )


def served_queues(
    using: str, handlers: Mapping[str, Handler], wanted: Sequence[str], excluded: Sequence[str]
) -> tuple[str, ...]:
    """The queues to serve, in order: those named, or all that have a handler or a tasks backend.

    `*` among the names stands for all of these that are not named.

    Raises NotReady for a queue that is not there or that nothing would handle.
    """
    known = set(Queue.objects.db_manager(using).values_list("name", flat=True))
    handled = handlers.keys() | queues_of_kinds()
    queues = tuple(queue for queue in _expand_wildcard(handled, wanted) if queue not in excluded)
    for queue in [*queues, *excluded]:
        if queue not in known:
            raise NotReady(str(QueueNotFound(queue, known)))
    for queue in queues:
        if queue not in handled:
            raise NotReady(
                f"Queue {queue!r} has no handler. Write one with @handler({queue!r}) in the "
                "`handlers` module of an installed app or one of MQLITE['HANDLERS'], name the "
                "queue in the QUEUES of a tasks backend in TASKS, or leave it out."
            )
    if not queues:
        raise NotReady(
            "There is nothing to serve: no handler is registered for any queue that is left. "
            "Write one with @handler('queue') in the `handlers` module of an installed app or one "
            "of MQLITE['HANDLERS']."
        )
    return queues


def _expand_wildcard(handled: AbstractSet[str], wanted: Sequence[str]) -> Iterator[str]:
    for queue in wanted or ["*"]:
        if queue == "*":
            yield from sorted(handled - set(wanted))
        else:
            yield queue
