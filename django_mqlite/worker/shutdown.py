"""A request to shut down, and the signals that make it."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread, local
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEFAULTS: Mapping[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
"""What Python does about them when a process begins."""


class Shutdown:
    """Asked for once, seen by every loop of the process."""

    def __init__(self) -> None:
        self.failed = False
        self._event = Event()
        self._wake: list[Callable[[], None]] = []
        self._leave: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self, *, failed: bool = False) -> None:
        """Ask every loop to come to its end; `failed`: the process is to end with exit code 1."""
        self.failed = self.failed or failed
        self._event.set()
        for wake in self._wake:
            wake()

    def on_request(self, wake: Callable[[], None]) -> None:
        """Call `wake` when stopping is asked for."""
        self._wake.append(wake)

    def on_leave(self, act: Callable[[], None]) -> None:
        """Call `act` before the process is left at once."""
        self._leave.append(act)

    def leave(self, code: int) -> NoReturn:
        """Leave the process at once, whatever still runs."""
        for act in self._leave:
            act()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def wait(self, seconds: float) -> bool:
        """Rest, but not beyond the wish to stop; whether it has come."""
        return self._event.wait(seconds)


@contextmanager
def shutdown_on_signals(
    stop: Shutdown, signals: Iterable[signal.Signals] = SIGNALS, *, insist: bool = True
) -> Iterator[None]:
    """The first of these signals asks to stop; a second one, if `insist`, ends the process at once.

    After the block they mean what they meant before.

    The handlers do nothing: Python writes the signal's number to a socket the moment it arrives,
    even while the main thread waits for a lock of the database, and a thread reads it there. (Work
    in a handler itself, setting an Event for one, can deadlock with the code it interrupts.)
    """
    expected = tuple(signals)
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    former_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    former = {number: signal.getsignal(number) for number in expected}
    for number in expected:
        ignore(number)
    arguments = (reader, stop, expected, insist)
    watch = Thread(target=_watch, args=arguments, name="mqlite-signals", daemon=True)
    watch.start()
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(former_fd)
        writer.shutdown(socket.SHUT_WR)  # a process that a handler started may have it open too
        writer.close()
        watch.join()


def ignore(number: signal.Signals) -> None:
    """Keep the signal from this process alone; SIG_IGN would reach the programs it starts."""
    signal.signal(number, _ignore_signal)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Its being there keeps the default action away."""


def _watch(
    reader: socket.socket, stop: Shutdown, signals: Collection[signal.Signals], insist: bool
) -> None:
    with reader:
        while number := reader.recv(1):
            if number[0] not in signals:
                continue
            if stop.requested and insist:
                sys.stderr.write("second signal: leaving at once, leases run out by themselves\n")
                stop.leave(128 + number[0])
            stop.request()


# A handler may fork. Its child shares the socket, and a signal that is meant for the child would
# stop the worker; so the signals wait until the child has Python's own handlers again.

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
