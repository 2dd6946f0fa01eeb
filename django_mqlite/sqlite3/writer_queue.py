"""The threads of a process queue up to write, so that one of them at a time tries for the lock.

SQLite admits one writer at a time. Threads that tried each for itself would only take the
interpreter from one another; processes know nothing of each other, and try.
"""

import os
import time
from collections import deque
from threading import Lock, RLock
from typing import Protocol
from urllib.parse import parse_qs, urlsplit
from weakref import ReferenceType, WeakValueDictionary, ref

from ..paths import URI, file_of

LONGEST_LOOK_AWAY = 0.05
"""Seconds until a waiting thread notices that the one inside has gone without saying so."""


class Writer(Protocol):
    """A connection that waits for its turn."""

    @property
    def is_writing(self) -> bool:
        """Whether it has a transaction open or is waiting for one."""


class _Turn:
    """A place in the queue; the lock is released by whoever hands the turn over."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.lock = Lock()
        self.lock.acquire()


class WriterQueue:
    """Lets one writer of the process in, in the order of their coming, until it leaves.

    Held by the connection and not by the thread, because a transaction may move from one thread to
    another. It is only a courtesy among threads: SQLite's own lock decides who writes.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nobody is inside: in a forked process the others do not exist."""
        self._guard = (
            RLock()
        )  # a signal handler or a finaliser may write while its thread is in here
        self._inside: ReferenceType[Writer] | None = None
        self._queue: deque[_Turn] = deque()

    def enter(self, writer: Writer, *, deadline: float) -> bool:
        """Wait until `writer` may go in; False if that was not until `deadline` (monotonic)."""
        with self._guard:
            if self._is_inside(writer) or (not self._queue and self._is_empty()):
                self._inside = ref(writer)
                return True
            turn = _Turn(writer)
            self._queue.append(turn)
        while not turn.lock.acquire(timeout=_bounded(deadline - time.monotonic())):
            with self._guard:
                if not self._is_inside(writer) and self._is_empty():
                    self._let_next_in()
                if self._is_inside(writer):
                    return True
                if time.monotonic() >= deadline:
                    self._queue.remove(turn)
                    return False
        return True

    def leave(self, writer: Writer) -> None:
        """Let the next one in; nothing if `writer` was not inside. It waits no longer either."""
        with self._guard:
            if self._is_inside(writer):
                self._let_next_in()
            elif self._queue:
                self._queue = deque(turn for turn in self._queue if turn.writer is not writer)

    def _is_inside(self, writer: Writer) -> bool:
        return self._inside is not None and self._inside() is writer

    def _is_empty(self) -> bool:
        """A connection that died with its thread, or has ended without leaving, is not inside."""
        inside = None if self._inside is None else self._inside()
        return inside is None or not inside.is_writing

    def _let_next_in(self) -> None:
        if self._queue:
            turn = self._queue.popleft()
            self._inside = ref(turn.writer)
            turn.lock.release()
        else:
            self._inside = None


def _bounded(seconds: float) -> float:
    return max(0.0, min(seconds, LONGEST_LOOK_AWAY))


_turnstiles: WeakValueDictionary[str, WriterQueue] = WeakValueDictionary()
_guard = RLock()


def writer_queue_for(database: object) -> WriterQueue:
    """The one of this database file or shared memory; one of its own for private memory."""
    place = _place(os.fspath(database) if isinstance(database, os.PathLike) else str(database))
    if place is None:
        return WriterQueue()
    with _guard:
        return _turnstiles.setdefault(place, WriterQueue())


def _place(name: str) -> str | None:
    file = file_of(name)
    if file is not None:
        return str(file.resolve())
    is_shared = name.startswith(URI) and parse_qs(urlsplit(name).query).get("cache") == ["shared"]
    return name if is_shared else None


def _forget_all() -> None:
    global _guard
    _guard = RLock()
    for turnstile in list(_turnstiles.values()):
        turnstile.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
