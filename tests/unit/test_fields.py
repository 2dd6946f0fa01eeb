"""Epoch milliseconds as aware datetimes."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.core.exceptions import ValidationError

from django_mqlite.fields import EpochMillisecondsField
from django_mqlite.timing import epoch_ms, moment

MAX_EPOCH_MS = 253_402_214_399_999
"""A day before the end of the year 9999, so that it is a time in every time zone."""

AT = datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)
AT_MS = 1_767_225_600_123


def test_a_millisecond_is_an_aware_utc_datetime_and_back():
    at = moment(AT_MS)

    assert at == AT
    assert at.utcoffset() == timedelta(0)
    assert epoch_ms(at) == AT_MS


def test_zero_is_never():
    assert moment(0) is None


@pytest.mark.parametrize("ms", [1, -1, MAX_EPOCH_MS, 2**40 + 7])
def test_no_millisecond_is_lost_to_floating_point(ms):
    assert epoch_ms(moment(ms)) == ms


def test_any_time_zone_is_the_same_instant():
    assert epoch_ms(AT.astimezone(timezone(timedelta(hours=-7)))) == AT_MS


def test_a_naive_datetime_is_refused_not_guessed():
    with pytest.raises(ValueError, match="no time zone"):
        epoch_ms(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize("value", [None, 0, ""])
def test_the_field_stores_nothing_as_zero(value):
    assert EpochMillisecondsField().get_prep_value(value) == 0


@pytest.mark.parametrize("value", [AT, AT_MS, AT.isoformat()])
def test_the_field_stores_datetimes_numbers_and_iso_texts_as_milliseconds(value):
    assert EpochMillisecondsField().get_prep_value(value) == AT_MS


@pytest.mark.parametrize("value", ["soon", 1.5, []])
def test_the_field_refuses_what_is_no_time(value):
    with pytest.raises(ValidationError, match="Invalid time"):
        EpochMillisecondsField().to_python(value)
