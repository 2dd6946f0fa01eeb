"""Model fields for documents, points in time and durations."""

from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.text import capfirst, format_lazy

from .timing import MAX_DURATION_MS, epoch_ms, milliseconds, moment


class DocumentField(models.JSONField):
    """A JSON document; its value is the text if Python cannot parse it.

    SQLite accepts documents that Python rejects, such as a number of 5,000 digits. One such
    document must not make a list of rows fail.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return value


class ComputedTextField(models.TextField):  # type: ignore[type-arg]
    """A text that the table computes from other columns; it is never written."""

    generated = True
    referenced_fields: frozenset[Any] = frozenset()
    """The fields whose save() would read this one again; guarded models save none of them."""


class EpochMillisecondsField(models.Field):  # type: ignore[type-arg]
    """INTEGER epoch milliseconds in the table, an aware UTC `datetime` (or None for 0) in Python.

    USE_TZ has no effect, because a lease must not change with a setting.
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
            raise ValidationError(f"Invalid time {value!r}: use ISO 8601") from error

    def get_prep_value(self, value: Any) -> int:
        at = self.to_python(value)
        return epoch_ms(at) if at else 0

    def value_to_string(self, obj: models.Model) -> str:
        at = self.value_from_object(obj)
        return at.isoformat() if at else ""


class SecondsField(forms.FloatField):
    """A form field that shows seconds and returns whole milliseconds."""

    def prepare_value(self, value: Any) -> Any:
        return value / 1000 if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)

    def clean(self, value: Any) -> int:
        return milliseconds(super().clean(value), "duration")


class MillisecondsField(models.BigIntegerField):  # type: ignore[type-arg]
    """A duration of at least `minimum` milliseconds; forms show it in seconds."""

    description = "Duration in milliseconds"

    def __init__(self, *args: Any, minimum: int = 0, **options: Any) -> None:
        super().__init__(*args, **options)
        # Only forms use it, so it is not part of the migration state.
        self.minimum = minimum

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def formfield(self, **options: Any) -> Any:
        options.setdefault("form_class", SecondsField)
        return super().formfield(
            **{
                "label": format_lazy("{} (s)", capfirst(self.verbose_name)),
                "min_value": self.minimum / 1000,
                "max_value": MAX_DURATION_MS / 1000,
                **options,
            }
        )
