"""The model field behind every time column."""

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from .timing import epoch_ms, moment


class DocumentField(models.JSONField):
    """A JSON document that reads as its text where Python cannot parse it.

    SQLite takes documents that Python refuses, such as a number of 5,000 digits, and one of them
    must not make a whole list of rows unreadable.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return value


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
