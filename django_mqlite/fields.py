"""The model field behind every time column."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=1024)  # the messages of a batch have most of their times in common
def moment(epoch_ms: int) -> datetime | None:
    """The aware UTC datetime of an epoch millisecond; None for 0, which means "never"."""
    return EPOCH + timedelta(milliseconds=epoch_ms) if epoch_ms else None


def iso(epoch_ms: int | None) -> str | None:
    """The time as JSON has it; None for 0 and for none."""
    at = moment(epoch_ms or 0)
    return at.isoformat() if at else None


def epoch_ms(at: datetime) -> int:
    """The epoch millisecond of an aware datetime; a naive one is a ValueError, not a guess."""
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; pass an aware one, e.g. datetime.now(UTC)")
    return (at - EPOCH) // timedelta(milliseconds=1)


class EpochMillisecondsField(models.Field):  # type: ignore[type-arg]
    """INTEGER epoch milliseconds in the table, an aware UTC `datetime` (or None for 0) in Python.

    Whatever USE_TZ says: a lease that shifts with a setting would be no lease.
    """

    description = "Epoch milliseconds"

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: int | None, expression: Any, connection: Any) -> datetime | None:
        return moment(value) if value else None

    def to_python(self, value: Any) -> datetime | None:
        if value in (None, 0, ""):
            return None
        if isinstance(value, datetime):
            return value
        if isinstance(value, int):
            return moment(value)
        try:
            return datetime.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise ValidationError(f"{value!r} is not a time") from error

    def get_prep_value(self, value: Any) -> int:
        at = self.to_python(value)
        return epoch_ms(at) if at else 0

    def value_to_string(self, obj: models.Model) -> str:
        at = self.value_from_object(obj)
        return at.isoformat() if at else ""
