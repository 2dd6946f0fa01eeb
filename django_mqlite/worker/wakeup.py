"""Wake the worker: on a finished handler, a commit, a shutdown request, or a timeout."""

import contextlib
import ctypes
import os
import select
import selectors
import socket
import sys
from pathlib import Path
from typing import Protocol

from ..doorbell import doorbell_path

IN_ATTRIB = 0x4


class Inotify:
    """A file watch that becomes readable when the file's times change."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        if libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_ATTRIB) < 0:
            self.close()
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._descriptor

    def drain(self) -> None:
        """Discard pending events, so that the next change is noticed."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 4096)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


if sys.platform != "win32" and sys.platform != "linux":

    class Kqueue:
        """A file watch that becomes readable when the file's times change."""

        def __init__(self, path: Path) -> None:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._queue = select.kqueue()
                self._queue.control([self._event()], 0, 0)
            except OSError:
                os.close(self._file)
                raise

        def _event(self) -> select.kevent:
            return select.kevent(
                self._file,
                filter=select.KQ_FILTER_VNODE,
                flags=select.KQ_EV_ADD | select.KQ_EV_CLEAR,
                fflags=select.KQ_NOTE_ATTRIB,
            )

        def fileno(self) -> int:
            """Return the descriptor of the kqueue, which selectors can wait for."""
            return self._queue.fileno()

        def drain(self) -> None:
            """Discard pending events, so that the next change is noticed."""
            self._queue.control(None, 16, 0)

        def close(self) -> None:
            """Close the descriptors."""
            self._queue.close()
            os.close(self._file)


SLOW_POLL = 0.1
"""Seconds between two queries with a doorbell; they find commits that did not ring it."""

FAST_POLL = 0.02
"""Seconds between two queries without a doorbell."""


class Doorbell(Protocol):
    """A watched file, whose times change with each commit."""

    def fileno(self) -> int: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...


class Wakeup:
    """Wait for a notification from this process or the doorbell of the database."""

    def __init__(self, using: str) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._notified = False
        self._doorbell = _open_doorbell(doorbell_path(using))
        if self._doorbell is not None:
            self._selector.register(self._doorbell, selectors.EVENT_READ)

    @property
    def poll_interval(self) -> float:
        """Maximum seconds until a commit is noticed."""
        return FAST_POLL if self._doorbell is None else SLOW_POLL

    def notify(self) -> None:
        """Wake the worker, from any thread. Publish the change before calling this."""
        if self._notified:
            return  # one notification is enough for handlers that finish at the same time
        self._notified = True
        with contextlib.suppress(OSError):  # closed already
            self._writer.send(b"!")

    def wait(self, seconds: float) -> None:
        """Wait for an event, at most this many seconds."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._doorbell:
                self._doorbell.drain()
            else:
                with contextlib.suppress(BlockingIOError):
                    self._reader.recv(4096)
        self._notified = False  # before the caller reads, so that later changes notify again

    def close(self) -> None:
        """Close the descriptors."""
        self._selector.close()
        self._reader.close()
        self._writer.close()
        if self._doorbell is not None:
            self._doorbell.close()


def _open_doorbell(path: Path | None) -> Doorbell | None:
    """Return the doorbell; None without a file, without permission, or on Windows."""
    if path is None:
        return None
    with contextlib.suppress(OSError):  # a file of another user can still be watched
        path.touch()
    with contextlib.suppress(OSError):
        return _watch(path)
    return None


def _watch(path: Path) -> Doorbell | None:
    watch: Doorbell | None = None
    if sys.platform == "linux":
        watch = Inotify(path)
    elif sys.platform != "win32":
        watch = Kqueue(path)
    return watch
