"""Time: the clock, durations, backoff, and conversions of epoch milliseconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

from .guard import safe_repr


class Clock(Protocol):
    """The interface of a clock."""

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds, UTC."""
        ...


class SystemClock:
    """The wall clock, because leases must have the same meaning in every process."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


_clock: Clock = SystemClock()


def clock_in_use() -> Clock:
    """Return the clock in use."""
    return _clock


def now_ms() -> int:
    """Return the time of the clock in use in epoch milliseconds."""
    return _clock.now_ms()


@contextmanager
def use_clock(clock: Clock) -> Iterator[Clock]:
    """Use `clock` inside the block, in every thread of this process."""
    global _clock
    previous, _clock = _clock, clock
    try:
        yield clock
    finally:
        _clock = previous


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# One day inside the range of datetime, so that both can be shown in every time zone.
FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


@lru_cache(maxsize=1024)  # the messages of a batch share most of their times
def moment(epoch_ms: int) -> datetime | None:
    """Return the aware UTC datetime for epoch milliseconds; None for 0, which means "never".

    Times outside the range of datetime, which only other programs write, are clamped to it, so that
    their rows remain readable.
    """
    if not epoch_ms:
        return None
    try:
        return min(max(EPOCH + timedelta(milliseconds=epoch_ms), FIRST), LAST)
    except OverflowError:
        return LAST if epoch_ms > 0 else FIRST


def iso(epoch_ms: int | None) -> str | None:
    """Return the time in ISO 8601, or None for 0 and None."""
    at = moment(epoch_ms or 0)
    return at.isoformat() if at else None


def epoch_ms(at: datetime) -> int:
    """Return an aware datetime in epoch milliseconds; raise ValueError for a naive one."""
    if at.tzinfo is None:
        raise ValueError(
            f"{at!r} has no time zone: pass an aware datetime, for example datetime.now(UTC)"
        )
    return (at - EPOCH) // timedelta(milliseconds=1)


Duration = timedelta | int | float
"""A timedelta, or seconds."""

MAX_DURATION_MS = 100 * 366 * 24 * 3_600_000
"""A hundred years. Longer durations are mistakes, and sums could exceed the year 9999."""

MILLISECOND = timedelta(milliseconds=1)


def milliseconds(value: Duration, name: str, *, minimum: int = 0) -> int:
    """Return `value` in whole milliseconds, rounded up, so that a tiny delay does not become 0.

    Floats are rounded to the microsecond first: 2.007 s is 2,007 ms, although the float is larger.

    Raises TypeError for anything but a timedelta or a number, and ValueError for NaN, for less
    than `minimum` milliseconds and for more than a hundred years; both name the argument.
    """
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise TypeError(
            f"{name} must be a timedelta or a number of seconds, not {safe_repr(value)}"
        )
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not minimum / 1000 <= seconds <= MAX_DURATION_MS / 1000:  # NaN fails this as well
        lower_limit = f"at least {minimum / 1000:g} s" if minimum else "not negative"
        raise ValueError(
            f"{name} must be {lower_limit} and at most 100 years, not {safe_repr(value)}"
        )
    duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    return -(-duration // MILLISECOND) or int(seconds > 0)


def backoff_ms(delivery_count: int, *, base_ms: int, max_ms: int, chance: float) -> int:
    """Return an exponential delay with equal jitter: half of `base · 2^(n-1)` plus a random half.

    `delivery_count` counts from 1, `chance` is in [0, 1). The result is never above `max_ms`. The
    exponent is limited first, because Python would compute 2**10_000 exactly and slowly. Source:
    "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 ("equal jitter").
    """
    exponent = min(max(delivery_count, 1) - 1, 62)
    ceiling = min(base_ms * 2**exponent, max_ms)
    return int(ceiling / 2 + ceiling / 2 * chance)
