"""Limits of a queue: a rate such as 100/min, its token bucket, and the leases that may be held."""

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Self

from .guard import safe_repr
from .timing import iso, milliseconds

UNITS: Final = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds by unit of a rate, as it is shown."""

UNIT_NAMES: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
"""Accepted names of the units."""

RATE_TEXT = re.compile(r"([0-9]{1,7}) */ *([0-9]{1,7}(?:\.[0-9]{1,3})?)? *([a-z]+)", re.ASCII)

MAX_RATE_COUNT = 1_000_000
MAX_RATE_PERIOD_MS = 366 * UNITS["d"]
"""Together with MAX_RATE_COUNT, this keeps the level of a bucket within 63 bits."""

SHAPE = (
    'a number of deliveries and a period, such as "100/min", "10/s", "1000/h", "1/30s" or '
    "(100, timedelta(minutes=1))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most `count` deliveries in a burst, and on average `count` in each period."""

    count: int
    period_ms: int

    def __str__(self) -> str:
        """Return the rate as it is written, such as 100/min or 1/30s."""
        unit = next((unit for unit in reversed(UNITS) if self.period_ms % UNITS[unit] == 0), "s")
        number = self.period_ms / UNITS[unit]
        return f"{self.count}/{'' if number == 1 else f'{number:.15g}'}{unit}"


def read_rate(value: Any, name: str) -> Rate:
    """Return the rate for "100/min", or for a pair of a count and a period; raise ValueError or
    TypeError, naming `name`, for anything else.

    The period is a number with a unit (s, min, h or d), or in a pair a timedelta or seconds.
    """
    if isinstance(value, str):
        return _parsed_rate(value, name)
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"{name} must be {SHAPE}, not {safe_repr(value)}")
    count, period = value
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be {SHAPE}, not {safe_repr(value)}")
    return _checked_rate(count, milliseconds(period, f"the period of {name}", minimum=1), name)


def _parsed_rate(text: str, name: str) -> Rate:
    match = RATE_TEXT.fullmatch(text.strip())
    if match is None or match[3] not in UNIT_NAMES:
        raise ValueError(f"{name} must be {SHAPE}, not {safe_repr(text)}")
    period_ms = round(float(match[2] or 1) * UNITS[UNIT_NAMES[match[3]]])
    return _checked_rate(int(match[1]), period_ms, name)


def _checked_rate(count: int, period_ms: int, name: str) -> Rate:
    if not (0 < count <= MAX_RATE_COUNT and 0 < period_ms <= MAX_RATE_PERIOD_MS):
        raise ValueError(
            f"{name} must be 1 to {MAX_RATE_COUNT:,} deliveries in a period of 1 ms to "
            f"{timedelta(milliseconds=MAX_RATE_PERIOD_MS).days} days"
        )
    return Rate(count=count, period_ms=period_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A token bucket: it holds at most `rate.count` tokens, and refills evenly.

    A token is `rate.period_ms` units of `level`, so each millisecond adds exactly `rate.count`
    units and no fraction is lost. `updated_at` is in epoch milliseconds.
    """

    rate: Rate
    level: int
    updated_at: int
    is_restarted: bool = False
    """True if the clock was set back since `updated_at`, so that the refill starts from now."""

    def at(self, now: int) -> Self:
        """Return the bucket at `now`.

        A time before `updated_at` adds no tokens. The bucket refills from there, because waiting
        until the clock has reached `updated_at` again could take hours.
        """
        elapsed = min(max(0, now - self.updated_at), self.rate.period_ms)
        return replace(
            self,
            level=min(self.level + elapsed * self.rate.count, self._full),
            updated_at=now,
            is_restarted=now < self.updated_at,
        )

    @property
    def tokens(self) -> int:
        """The number of deliveries that the bucket allows."""
        return self.level // self.rate.period_ms

    @property
    def next_token_at(self) -> int | None:
        """The time of the next token; None if the bucket is full."""
        if self.level >= self._full:
            return None
        missing = self.rate.period_ms - self.level % self.rate.period_ms
        return self.updated_at + -(-missing // self.rate.count)

    def take(self, count: int) -> Self:
        """Return the bucket without `count` tokens."""
        return replace(self, level=self.level - count * self.rate.period_ms)

    def with_rate(self, rate: Rate) -> Self:
        """Return a bucket of the new rate with the same number of tokens, at most its count."""
        level = self.level * rate.period_ms // self.rate.period_ms
        return replace(self, rate=rate, level=min(level, rate.count * rate.period_ms))

    @property
    def _full(self) -> int:
        return self.rate.count * self.rate.period_ms


NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """The limits of a queue and their use at one time. Times are in epoch milliseconds.

    `max_in_flight` 0 and `bucket` None mean no limit. `in_flight` is the number of live leases, and
    `first_expiry` the time at which the first of them ends unless it is settled or renewed; without
    `max_in_flight` they are not counted.
    """

    max_in_flight: int = 0
    in_flight: int = 0
    first_expiry: int | None = None
    bucket: Bucket | None = None

    @property
    def is_set(self) -> bool:
        """True if the queue has a limit."""
        return self.max_in_flight > 0 or self.bucket is not None

    @property
    def free_leases(self) -> int:
        """The number of leases that `max_in_flight` allows now."""
        return max(0, self.max_in_flight - self.in_flight) if self.max_in_flight else NO_LIMIT

    @property
    def tokens(self) -> int:
        """The number of deliveries that the rate allows now."""
        return self.bucket.tokens if self.bucket else NO_LIMIT

    @property
    def room(self) -> int:
        """The number of messages that can be claimed now."""
        return min(self.free_leases, self.tokens)

    @property
    def facts(self) -> dict[str, Any]:
        """The limits and their use as JSON types, None for a limit that is not set.

        `next_token_at` is None while the rate has a token.
        """
        bucket = self.bucket
        return {
            "max_in_flight": self.max_in_flight or None,
            "in_flight": self.in_flight if self.max_in_flight else None,
            "rate": None if bucket is None else str(bucket.rate),
            "tokens": None if bucket is None else bucket.tokens,
            "next_token_at": None if bucket is None or bucket.tokens else iso(bucket.next_token_at),
        }

    @property
    def opens_at(self) -> int:
        """The earliest time for a claim unless a message is settled before; 0 for now.

        A bucket that the clock has restarted needs a claim, which stores its new time.
        """
        if self.bucket is not None and self.bucket.is_restarted:
            return 0
        lease = 0 if self.free_leases else (self.first_expiry or 0)
        token = 0 if self.tokens or self.bucket is None else (self.bucket.next_token_at or 0)
        return max(lease, token)


UNLIMITED: Final = QueueLimits()
