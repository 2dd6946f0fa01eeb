"""The one clock of the package: epoch milliseconds, injectable, never the database's."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    """Anything that can tell the time in epoch milliseconds, UTC."""

    def now_ms(self) -> int:
        """Epoch milliseconds, UTC."""
        ...


class SystemClock:
    """The machine's wall clock; leases must mean the same to every process, so no monotonic one."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


_clock: Clock = SystemClock()


def clock_in_use() -> Clock:
    """The clock that tells the time now."""
    return _clock


def now_ms() -> int:
    """Epoch milliseconds of the clock in use."""
    return _clock.now_ms()


@contextmanager
def use_clock(clock: Clock) -> Iterator[Clock]:
    """Tell the time by `clock` inside the block, in every thread of this process."""
    global _clock
    before, _clock = _clock, clock
    try:
        yield clock
    finally:
        _clock = before
