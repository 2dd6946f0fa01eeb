"""A request to shut down, and the signals that make it."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread, local
from types import FrameType
from typing import Any, NoReturn

from ..logs import flush_streams

SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEFAULTS: Mapping[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
"""The handlers that Python installs when a process starts."""

REPEAT_PERIOD = 0.1
"""Seconds after a first signal in which further ones repeat it. Programs that start a worker may
send a signal to it and to its process group: timeout(1) does, and npm, which forwards Ctrl-C."""


class Shutdown:
    """A shutdown request that all loops of the process see."""

    def __init__(self) -> None:
        self.failed = False
        self.signaled = False
        """True if a signal made a request; the process may have requested shutdown by itself."""
        self._event = Event()
        self._wake_callbacks: list[Callable[[], None]] = []
        self._exit_callbacks: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self, *, failed: bool = False) -> None:
        """Request shutdown; if `failed` is true, the process exits with code 1."""
        self.failed = self.failed or failed
        self._event.set()
        for wake in self._wake_callbacks:
            wake()

    def on_request(self, wake: Callable[[], None]) -> None:
        """Call `wake` when shutdown is requested."""
        self._wake_callbacks.append(wake)

    def on_exit_now(self, callback: Callable[[], None]) -> None:
        """Call `callback` before exit_now() exits."""
        self._exit_callbacks.append(callback)

    def exit_now(self, code: int) -> NoReturn:
        """Exit the process immediately, without waiting for threads or running handlers."""
        for callback in self._exit_callbacks:
            callback()
        flush_streams()
        os._exit(code)

    def wait(self, seconds: float) -> bool:
        """Wait for a shutdown request, at most this many seconds; return True if there is one."""
        return self._event.wait(seconds)


@contextmanager
def shutdown_on_signals(
    shutdown: Shutdown, signals: Iterable[signal.Signals] = SIGNALS, *, insist: bool = True
) -> Iterator[None]:
    """Request shutdown on the first of these signals; on a second one, exit if `insist`.

    Signals within REPEAT_PERIOD count as one, and only signals count. The worker may already be
    shutting down when the first one arrives: a signal to a process group also ends the shell, and
    the worker may notice that first.

    The previous handlers are restored after the block.

    The installed handlers do nothing. Python writes the signal's number to a socket as soon as it
    arrives, even while the main thread waits for a database lock, and a thread reads it there.
    (Doing work in the handler, even setting an Event, can deadlock with the code it interrupts.)
    """
    expected = tuple(signals)
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    previous_handlers = {number: signal.getsignal(number) for number in expected}
    for number in expected:
        ignore(number)
    arguments = (reader, shutdown, expected, insist)
    watch = Thread(target=_watch, args=arguments, name="mqlite-signals", daemon=True)
    watch.start()
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(previous_fd)
        writer.shutdown(socket.SHUT_WR)  # a process that a handler started may also have it open
        writer.close()
        watch.join()


def ignore(number: signal.Signals) -> None:
    """Ignore the signal in this process only; child programs would inherit SIG_IGN."""
    signal.signal(number, _ignore_signal)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing; installing this handler disables the default action."""


def _watch(
    reader: socket.socket, shutdown: Shutdown, signals: Collection[signal.Signals], insist: bool
) -> None:
    first_at = 0.0
    with reader:
        while number := reader.recv(1):
            if number[0] not in signals:
                continue
            if not shutdown.signaled:
                first_at = time.monotonic()
            elif insist and time.monotonic() - first_at >= REPEAT_PERIOD:
                with suppress(OSError):
                    sys.stderr.write(
                        "second signal: exiting immediately; leases of running handlers will "
                        "expire\n"
                    )
                shutdown.exit_now(128 + number[0])
            shutdown.signaled = True
            shutdown.request()


# A handler may fork. The child shares the socket, so a signal meant for the child would stop the
# worker. The signals are therefore blocked until the child has Python's own handlers again.

_before_fork = local()


def _block_signals() -> None:
    _before_fork.mask = None
    if _ignored_signals():
        _before_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _unblock_signals() -> None:
    if _before_fork.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _before_fork.mask)


def _reset_signals() -> None:
    if _before_fork.mask is not None:
        signal.set_wakeup_fd(-1)
        for number in _ignored_signals():
            signal.signal(number, DEFAULTS[number])
    _unblock_signals()


def _ignored_signals() -> list[signal.Signals]:
    return [number for number in SIGNALS if signal.getsignal(number) is _ignore_signal]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_reset_signals
    )
