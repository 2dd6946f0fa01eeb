"""A queue of the threads of a process, so that only one at a time tries to lock the database.

SQLite has one writer at a time, and threads that all retry compete for the interpreter.
Processes do not share a queue; they compete for SQLite's lock.
"""

import os
import time
from collections import deque
from threading import Lock, RLock
from typing import Protocol
from urllib.parse import parse_qs, urlsplit
from weakref import ReferenceType, WeakValueDictionary, ref

from ..paths import URI, file_of

CHECK_INTERVAL = 0.05
"""Seconds between checks for a writer that ended without leaving the queue."""


class Writer(Protocol):
    """A connection that waits for its turn."""

    @property
    def is_writing(self) -> bool:
        """True while a transaction is open or the connection is waiting for one."""


class _Turn:
    """A place in the queue. Its lock is released when the turn comes."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.lock = Lock()
        self.lock.acquire()


class WriterQueue:
    """A queue that admits one writer at a time, in order of arrival, until the writer leaves.

    A turn belongs to a connection, not to a thread, because a transaction may move between threads.
    The queue only improves fairness; SQLite's own lock excludes other writers.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset the queue: the other threads do not exist in a forked process."""
        # Reentrant: a signal handler or finalizer may write while its thread holds the guard.
        self._guard = RLock()
        self._current: ReferenceType[Writer] | None = None
        self._queue: deque[_Turn] = deque()

    def enter(self, writer: Writer, *, deadline: float) -> bool:
        """Wait for the turn of `writer`; return False if `deadline` (monotonic) passes first."""
        with self._guard:
            if self._is_current(writer) or (not self._queue and self._is_empty()):
                self._current = ref(writer)
                return True
            turn = _Turn(writer)
            self._queue.append(turn)
        while not turn.lock.acquire(timeout=_bounded(deadline - time.monotonic())):
            with self._guard:
                if not self._is_current(writer) and self._is_empty():
                    self._admit_next()
                if self._is_current(writer):
                    return True
                if time.monotonic() >= deadline:
                    self._queue.remove(turn)
                    return False
        return True

    def leave(self, writer: Writer) -> None:
        """End the turn of `writer`, or remove its place in the queue."""
        with self._guard:
            if self._is_current(writer):
                self._admit_next()
            elif self._queue:
                self._queue = deque(turn for turn in self._queue if turn.writer is not writer)

    def _is_current(self, writer: Writer) -> bool:
        return self._current is not None and self._current() is writer

    def _is_empty(self) -> bool:
        """Return whether no writer has the turn; one that ended without leaving does not count."""
        writer = None if self._current is None else self._current()
        return writer is None or not writer.is_writing

    def _admit_next(self) -> None:
        if self._queue:
            turn = self._queue.popleft()
            self._current = ref(turn.writer)
            turn.lock.release()
        else:
            self._current = None


def _bounded(seconds: float) -> float:
    return max(0.0, min(seconds, CHECK_INTERVAL))


_writer_queues: WeakValueDictionary[str, WriterQueue] = WeakValueDictionary()
_guard = RLock()


def writer_queue_for(database: object) -> WriterQueue:
    """Return the queue of all connections to `database`; a private in-memory one gets its own."""
    key = _key(os.fspath(database) if isinstance(database, os.PathLike) else str(database))
    if key is None:
        return WriterQueue()
    with _guard:
        return _writer_queues.setdefault(key, WriterQueue())


def _key(name: str) -> str | None:
    file = file_of(name)
    if file is not None:
        return str(file.resolve())
    is_shared = name.startswith(URI) and parse_qs(urlsplit(name).query).get("cache") == ["shared"]
    return name if is_shared else None


def _reset_all() -> None:
    global _guard
    _guard = RLock()
    for writer_queue in list(_writer_queues.values()):
        writer_queue.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
