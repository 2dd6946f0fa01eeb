"""Checks before a worker starts, and watchdogs for its parent, its memory and its files."""

import fnmatch
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
from ..paths import absolute_name
from ..schema import check_schema, schema_differences
from ..store import sqlite as store
from ..transactions import write_transaction
from .database_errors import advice
from .shutdown import Shutdown


class Parent:
    """The parent process. A process exits with its parent, because its shell can no longer stop it.

    A process started with `nohup` (ignores SIGHUP) or `setsid` (leads its own session) is meant to
    outlive its parent.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._is_watched = sys.platform != "win32" and not _is_detached()

    @property
    def gone(self) -> bool:
        """True if the parent of this process has ended."""
        return self._is_watched and os.getppid() != self._pid


def _is_detached() -> bool:
    ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return ignores_hangup or os.getsid(0) == os.getpid()


logger = get_logger("django_mqlite.worker")

CHECK_INTERVAL = 1.0
"""Seconds between two checks."""


class Memory:
    """The resident memory of this process, compared with `limit_mb` if it is set."""

    def __init__(self, limit_mb: int | None) -> None:
        self._limit_mb = limit_mb
        self._process = psutil.Process()
        self._check_at = 0.0
        self._exceeded = False

    @property
    def exceeded(self) -> bool:
        """True if the process has used more than the limit; checked at most once a second."""
        if self._limit_mb is not None and time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + CHECK_INTERVAL
            used_mb = self._process.memory_info().rss / 2**20
            if used_mb > self._limit_mb and not self._exceeded:
                logger.warning(
                    "the process uses %.0f MB, more than --max-memory; it is shutting down", used_mb
                )
                self._exceeded = True
        return self._exceeded


SIDECARS = ("-wal", "-shm")

Identity = tuple[int, int]


@contextmanager
def watched(using: str, shutdown: Shutdown, *, supervised: bool = False) -> Iterator[None]:
    """Exit the process if one of the database files is replaced, or if its parent has ended.

    It exits immediately in the first case: SQLite keeps using the files it has open, so writes
    after that would be lost although they were acknowledged. It shuts down in the second; the
    children of a supervisor watch their parent themselves. A separate thread checks, because the
    others may be waiting for a lock.
    """
    _make_names_absolute()
    path = database_path(using)
    files = None if path is None else DatabaseFiles(using, path)
    parent = None if supervised else Parent()
    finished = Event()
    arguments = (files, parent, finished, shutdown)
    thread = Thread(target=_watch, args=arguments, name="mqlite-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _make_names_absolute() -> None:
    """Make database names absolute: a handler may change the directory before a thread connects."""
    for connection in connections.all():
        if connection.vendor == "sqlite":
            settings = connection.settings_dict  # shared by all threads
            settings["NAME"] = absolute_name(str(settings["NAME"]))


def _watch(
    files: "DatabaseFiles | None", parent: Parent | None, finished: Event, shutdown: Shutdown
) -> None:
    while not finished.wait(CHECK_INTERVAL):
        if parent is not None and parent.gone and not shutdown.requested:
            logger.warning(
                "the process that started this one has ended, so this one is shutting down; use "
                "nohup, setsid or a process manager for a worker that outlives it"
            )
            shutdown.request()
        if files is not None and (gone := files.gone()):
            logger.error(
                "%s was replaced or removed; this process is exiting, so that it can be restarted "
                "on the current files. While a process uses a database, nothing but SQLite may "
                "open, move or remove its files",
                gone,
            )
            shutdown.exit_now(
                1
            )  # without closing, or SQLite would write the removed WAL into the new file


class DatabaseFiles:
    """The database file and its -wal and -shm files, as they were when they were opened.

    They are checked by stat() and never opened, because closing one would drop SQLite's locks.
    """

    def __init__(self, using: str, path: Path) -> None:
        with suppress(Error):  # the worker's own queries report it
            store.database_file.file_facts(connections[using])  # the first read creates the files
        files = [path, *(sidecar(path, suffix) for suffix in SIDECARS)]
        self._seen: dict[Path, Identity | None] = dict.fromkeys(files)
        self.gone()

    def gone(self) -> Path | None:
        """Return the first file that was replaced or removed. A missing file may still appear."""
        for path, original in self._seen.items():
            current = _identity(path)
            if original is None:
                self._seen[path] = current
            elif current != original:
                return path
        return None


def _identity(path: Path) -> Identity | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


class NotReady(MqliteError):
    """The worker cannot start. The message contains the solution."""


def check_writable(using: str) -> None:
    """Acquire the write lock once, so that a read-only or locked database fails at startup.

    Also check that the tables are as their migrations created them: without the triggers, an
    ordered message would be stored and never delivered.
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
            f"The queue's tables in database {using!r} differ from what their migrations created: "
            f"{'; '.join(differences)}. Restore a backup, or create what is missing: "
            "`manage.py mqlite doctor` explains how."
        )


def served_queues(
    using: str, handlers: Mapping[str, Handler], included: Sequence[str], excluded: Sequence[str]
) -> tuple[str, ...]:
    """Return the queues to serve, in order: `included`, or all with a handler or a tasks backend.

    A name with `*` is a pattern: it means the others of these that it matches. Those that do not
    exist in the database are skipped with a warning.

    Raises NotReady if a named queue does not exist or has no handler, or if a pattern matches none.
    """
    known = set(Queue.objects.db_manager(using).values_list("name", flat=True))
    handled = handlers.keys() | queues_of_kinds()
    left_out = set(_expand_patterns(handled, excluded))
    selected = dict.fromkeys(_expand_patterns(handled, included or ["*"]))
    missing = handled - known - {*included, *excluded}
    for queue in sorted(missing.intersection(selected) - left_out):
        logger.warning(
            "queue %s has a handler and is not served, because it is not in database %r; create "
            "it, for example with MQLITE['QUEUES'] and `manage.py migrate`, and restart the worker",
            queue,
            using,
        )
    queues = tuple(queue for queue in selected if queue not in left_out | missing)
    for queue in [*queues, *sorted(left_out - missing)]:
        if queue not in known:
            raise NotReady(str(QueueNotFound(queue, known)))
    for queue in queues:
        if queue not in handled:
            raise NotReady(
                f"Queue {queue!r} has no handler. Write one with @handler({queue!r}) in the "
                "`handlers` module of an installed app or one of MQLITE['HANDLERS'], name the "
                "queue in the QUEUES of a tasks backend in TASKS, or exclude it."
            )
    if not queues:
        raise NotReady(
            "There is no queue to serve: none of the selected queues exists and has a handler. "
            "Write one with @handler('queue') in the `handlers` module of an installed app or one "
            "of MQLITE['HANDLERS']."
        )
    return queues


def _expand_patterns(handled: AbstractSet[str], given: Sequence[str]) -> Iterator[str]:
    for pattern in given:
        if "*" not in pattern:
            yield pattern
            continue
        matching = sorted(fnmatch.filter(handled - set(given), pattern))
        if not matching and pattern != "*":
            raise NotReady(f"No queue with a handler matches {pattern!r}.")
        yield from matching
