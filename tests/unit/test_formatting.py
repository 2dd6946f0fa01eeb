"""Times and durations as people read them."""

import pytest

from django_mqlite.formatting import format_duration, format_progress, format_time
from django_mqlite.testing.fake_clock import START_MS

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (1, "0.001 s"),
        (1_500, "1.5 s"),
        (-14 * SECOND, "14 s"),
        (59_999, "60 s"),
        (MINUTE, "1 min"),
        (3 * MINUTE + 20_999, "3 min 20 s"),
        (5 * HOUR, "5 h"),
        (5 * HOUR + 10 * MINUTE + 59 * SECOND, "5 h 10 min"),
        (5 * HOUR + 59 * SECOND, "5 h"),
        (12 * DAY + 3 * HOUR, "12 d 3 h"),
        (400 * DAY + 1, "400 d"),
    ],
)
def test_duration_has_at_most_two_units(ms, text):
    assert format_duration(ms) == text


@pytest.mark.parametrize(
    ("ms", "zone", "text"),
    [
        (14 * SECOND, "UTC", "00:00:14 (in 14 s)"),
        (0, "UTC", "00:00:00 (0 s ago)"),
        (-SECOND, "UTC", "2025-12-31 23:59:59 (1 s ago)"),
        (-SECOND, "Europe/Berlin", "00:59:59 (1 s ago)"),
        (DAY, "UTC", "2026-01-02 00:00:00 (in 1 d)"),
    ],
)
def test_time_has_a_date_unless_the_date_is_today(settings, ms, zone, text):
    settings.TIME_ZONE = zone

    assert format_time(START_MS + ms, now=START_MS) == text


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (None, None),
        ({"fraction": 0.4, "text": "page 12 of 30", "updated_at": 1}, "40 %, page 12 of 30"),
        ({"fraction": 1, "text": ""}, "100 %"),
        ({"fraction": "x", "text": "only text"}, "only text"),
        ({"fraction": 5}, None),
        ([1, 2], "[1, 2]"),
    ],
)
def test_progress_of_any_shape_is_formatted(progress, text):
    assert format_progress(progress) == text
