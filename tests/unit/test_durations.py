"""Lengths of time as callers write them."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from django_mqlite.timing import MAX_DURATION_MS, milliseconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (1, 1_000),
        (1.5, 1_500),
        (timedelta(), 0),
        (timedelta(minutes=1), 60_000),
        (timedelta(days=1, microseconds=1), 86_400_001),
        (timedelta(milliseconds=2007), 2_007),
        (2.007, 2_007),
        (timedelta(milliseconds=2007, microseconds=1), 2_008),
        (MAX_DURATION_MS // 1000, MAX_DURATION_MS),
    ],
)
def test_seconds_and_timedeltas_become_milliseconds(value, expected):
    result = milliseconds(value, "delay")

    assert result == expected
    assert type(result) is int


def test_every_number_of_milliseconds_is_kept_as_it_is():
    numbers = [*range(10_000), *range(10**9, 10**9 + 10_000), MAX_DURATION_MS - 1]

    assert [milliseconds(timedelta(milliseconds=n), "delay") for n in numbers] == numbers
    assert [milliseconds(n / 1000, "delay") for n in numbers] == numbers


@pytest.mark.parametrize("value", [0.000_001, 0.0005, timedelta(microseconds=1), 5e-324])
def test_a_tiny_length_is_a_millisecond_not_none(value):
    assert milliseconds(value, "delay") == 1


@pytest.mark.parametrize(
    "value", [True, False, "5", None, b"five", [5], Decimal(5), Fraction(5), 1j, object()]
)
def test_what_is_no_length_of_time_is_a_type_error_that_names_the_argument(value):
    with pytest.raises(TypeError, match="delay must be a timedelta or a number of seconds"):
        milliseconds(value, "delay")


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        timedelta(microseconds=-1),
        float("nan"),
        float("inf"),
        float("-inf"),
        10**12,
        10**400,
        1e300,
        timedelta.max,
        timedelta.min,
        MAX_DURATION_MS / 1000 + 1,
    ],
)
def test_what_is_out_of_range_is_a_value_error_that_names_the_argument(value):
    with pytest.raises(ValueError, match="delay must be not negative and at most 100 years"):
        milliseconds(value, "delay")


@pytest.mark.parametrize("value", [0, 0.0, timedelta(), 0.0005])
def test_less_than_the_least_is_refused_with_the_least(value):
    with pytest.raises(ValueError, match=r"ttl must be at least 0\.001 s"):
        milliseconds(value, "ttl", minimum=1)
