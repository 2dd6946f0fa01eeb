"""What ends a worker's rest: a finished handler, a commit, the wish to stop, or time."""

import contextlib
import selectors
import socket
import sys
from pathlib import Path
from typing import Protocol

from ..doorbell import doorbell_path

SLOW_POLL = 0.1
"""Seconds between two looks where the doorbell is heard: for commits that did not ring."""

FAST_POLL = 0.02
"""The same where no doorbell can be heard."""


class Doorbell(Protocol):
    """A file whose times are watched."""

    def fileno(self) -> int: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...


class Wakeup:
    """Waits on the process's own bell and on the doorbell of the database."""

    def __init__(self, using: str) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._notified = False
        self._doorbell = _listen(doorbell_path(using))
        if self._doorbell is not None:
            self._selector.register(self._doorbell, selectors.EVENT_READ)

    @property
    def poll_interval(self) -> float:
        """How long a commit may stay unseen, in seconds."""
        return FAST_POLL if self._doorbell is None else SLOW_POLL

    def notify(self) -> None:
        """End the rest now; from any thread. What is to be seen then has to be there already."""
        if self._notified:
            return  # of several handlers that end together one wakes
        self._notified = True
        with contextlib.suppress(OSError):  # closed: nobody waits
            self._writer.send(b"!")

    def wait(self, seconds: float) -> None:
        """Rest until something happens, at most so long."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._doorbell:
                self._doorbell.drain()
            else:
                with contextlib.suppress(BlockingIOError):
                    self._reader.recv(4096)
        self._notified = False  # before anything is looked at, so that nothing later is missed

    def close(self) -> None:
        """Give the descriptors back."""
        self._selector.close()
        self._reader.close()
        self._writer.close()
        if self._doorbell is not None:
            self._doorbell.close()


def _listen(path: Path | None) -> Doorbell | None:
    """None where nothing can be heard: no file, no permission, or Windows."""
    if path is None:
        return None
    with contextlib.suppress(OSError):  # another user's, say, can still be watched
        path.touch()
    with contextlib.suppress(OSError):
        return _watch(path)
    return None


def _watch(path: Path) -> Doorbell | None:
    watch: Doorbell | None = None
    if sys.platform == "linux":
        from .inotify import Inotify  # noqa: PLC0415 - only there

        watch = Inotify(path)
    elif sys.platform != "win32":
        from .kqueue import Kqueue  # noqa: PLC0415 - only there

        watch = Kqueue(path)
    return watch
