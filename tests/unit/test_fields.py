"""EpochMillisecondsField: epoch milliseconds in the database, aware datetimes in Python."""

from datetime import UTC, datetime

import pytest
from django.core.exceptions import ValidationError

from django_mqlite.fields import EpochMillisecondsField

AT = datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)
AT_MS = 1_767_225_600_123


@pytest.mark.parametrize(
    ("value", "stored"),
    [(None, 0), (0, 0), ("", 0), (AT, AT_MS), (AT_MS, AT_MS), (AT.isoformat(), AT_MS)],
    ids=["None", "0", "empty text", "datetime", "number", "ISO text"],
)
def test_field_stores_milliseconds(value, stored):
    assert EpochMillisecondsField().get_prep_value(value) == stored


@pytest.mark.parametrize("value", ["soon", 1.5, []])
def test_field_refuses_a_value_that_is_not_a_time(value):
    with pytest.raises(ValidationError, match="Invalid time"):
        EpochMillisecondsField().to_python(value)
