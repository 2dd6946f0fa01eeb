"""Durations, backoff, epoch milliseconds and the clock."""

import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import pytest

from django_mqlite import timing
from django_mqlite.testing.fake_clock import START_MS, FakeClock
from django_mqlite.timing import MAX_DURATION_MS, backoff_ms, epoch_ms, milliseconds, moment

# Durations


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (1, 1_000),
        (1.5, 1_500),
        (2.007, 2_007),
        (timedelta(), 0),
        (timedelta(minutes=1), 60_000),
        (timedelta(days=1, microseconds=1), 86_400_001),
        (timedelta(milliseconds=2007), 2_007),
        (timedelta(milliseconds=2007, microseconds=1), 2_008),
        (MAX_DURATION_MS // 1000, MAX_DURATION_MS),
        # more than nothing is at least a millisecond
        (0.000_001, 1),
        (0.0005, 1),
        (timedelta(microseconds=1), 1),
        (5e-324, 1),
    ],
)
def test_duration_is_converted_to_milliseconds(value, expected):
    result = milliseconds(value, "delay")

    assert result == expected
    assert type(result) is int


def test_duration_in_whole_milliseconds_is_exact():
    numbers = [*range(10_000), *range(10**9, 10**9 + 10_000), MAX_DURATION_MS - 1]

    assert [milliseconds(timedelta(milliseconds=n), "delay") for n in numbers] == numbers
    assert [milliseconds(n / 1000, "delay") for n in numbers] == numbers


@pytest.mark.parametrize(
    "value", [True, False, "5", None, b"five", [5], Decimal(5), Fraction(5), 1j, object()]
)
def test_duration_of_another_type_is_refused_by_name(value):
    with pytest.raises(TypeError, match="delay must be a timedelta or a number of seconds"):
        milliseconds(value, "delay")


@pytest.mark.parametrize(
    "value",
    [-1, -0.001, timedelta(microseconds=-1), float("nan"), float("inf"), float("-inf"), 10**12,
     10**400, 1e300, timedelta.max, timedelta.min, MAX_DURATION_MS / 1000 + 1],
)  # fmt: skip
def test_duration_out_of_range_is_refused_by_name(value):
    with pytest.raises(ValueError, match="delay must be not negative and at most 100 years"):
        milliseconds(value, "delay")


@pytest.mark.parametrize("value", [0, 0.0, timedelta(), 0.0005])
def test_duration_below_the_minimum_is_refused_by_name(value):
    with pytest.raises(ValueError, match=r"ttl must be at least 0\.001 s"):
        milliseconds(value, "ttl", minimum=1)


# Backoff

NEARLY_ONE = 1 - 2**-53


def backoff(delivery_count, *, base_ms=1_000, max_ms=3_600_000, chance=0.0):
    return backoff_ms(delivery_count, base_ms=base_ms, max_ms=max_ms, chance=chance)


@pytest.mark.parametrize(
    ("delivery_count", "least"),
    [(-1, 500), (0, 500), (1, 500), (2, 1_000), (3, 2_000), (4, 4_000), (10, 256_000)],
)
def test_backoff_doubles_and_half_of_the_delay_is_random(delivery_count, least):
    assert backoff(delivery_count) == least
    assert backoff(delivery_count, chance=0.5) == least * 1.5
    assert backoff(delivery_count, chance=NEARLY_ONE) == pytest.approx(least * 2, abs=1)


@pytest.mark.parametrize("delivery_count", [12, 13, 100, 10_000, 2**63 - 1])
def test_backoff_never_exceeds_the_maximum(delivery_count):
    assert 1_000_000 <= backoff(delivery_count, chance=NEARLY_ONE) <= 3_600_000


def test_backoff_is_bounded_by_a_maximum_below_the_base():
    assert backoff(1, base_ms=10_000, max_ms=100, chance=NEARLY_ONE) <= 100


def test_backoff_with_base_zero_is_no_delay():
    assert backoff(5, base_ms=0, chance=NEARLY_ONE) == 0


def test_backoff_is_a_whole_number_of_milliseconds():
    assert isinstance(backoff(1, base_ms=333, chance=0.123), int)


# Moments

MAX_EPOCH_MS = 253_402_214_399_999
"""A day before the end of the year 9999, so that it is a time in every time zone."""


def test_moment_is_an_aware_utc_datetime():
    at = moment(1_767_225_600_123)

    assert at == datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)
    assert at.utcoffset() == timedelta(0)
    assert epoch_ms(at.astimezone(timezone(timedelta(hours=-7)))) == 1_767_225_600_123
    assert moment(0) is None


@pytest.mark.parametrize("ms", [1, -1, MAX_EPOCH_MS, 2**40 + 7])
def test_moment_keeps_every_millisecond(ms):
    assert epoch_ms(moment(ms)) == ms


# The clock


def test_clock_is_the_wall_clock_by_default():
    before = time.time_ns() // 1_000_000
    now = timing.now_ms()
    after = time.time_ns() // 1_000_000

    assert before <= now <= after


def test_fake_clock_applies_to_every_thread_until_its_block_ends():
    times = []

    with FakeClock() as fake:
        fake.advance(1)
        thread = threading.Thread(target=lambda: times.append(timing.now_ms()))
        thread.start()
        thread.join()

    assert times == [START_MS + 1_000]
    assert timing.now_ms() > START_MS + 1_000


def test_fake_clock_restores_the_former_clock_if_its_block_fails():
    with FakeClock() as outer:
        with pytest.raises(RuntimeError), FakeClock(moment(5)):
            raise RuntimeError

        assert timing.now_ms() == outer.now_ms()
