"""Lengths of time as callers write them, in milliseconds as the store counts them."""

from datetime import timedelta

Duration = timedelta | int | float
"""A timedelta, or seconds."""

MAX_DURATION_MS = 100 * 366 * 24 * 3_600_000
"""A hundred years: beyond that a number is a mistake, and sums could leave the year 9999."""

MILLISECOND = timedelta(milliseconds=1)


def milliseconds(value: Duration, name: str, *, least: int = 0) -> int:
    """`value` in whole milliseconds, rounded up so that a tiny delay is not none.

    A float counts to the microsecond: 2.007 s are 2,007 ms, although the float is a little more.

    Raises TypeError for anything but a timedelta or a number, and ValueError for NaN, for less
    than `least` milliseconds and for more than a hundred years; both name the argument.
    """
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise TypeError(f"{name} is a timedelta or a number of seconds, not {value!r}")
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not least / 1000 <= seconds <= MAX_DURATION_MS / 1000:  # NaN fails this as well
        least_said = f"at least {least / 1000:g} s" if least else "not negative"
        raise ValueError(f"{name} must be {least_said} and at most 100 years, not {value!r}")
    length = value if isinstance(value, timedelta) else timedelta(seconds=value)
    return -(-length // MILLISECOND) or int(seconds > 0)
