"""Filters of the lists of messages: by time, by worker, and by a text in their contents."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..models import Message
from ..timing import moment
from ..types import State
from .base import TextFilter
from .bulk_actions import selects_all

CONTAINS = "contains"
"""The parameter of the filter by contents, which no query set applies."""

RELATIVE = re.compile(r"([0-9]{1,4})([mhd])")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def read_time(text: str | None) -> datetime | None:
    """Return the time of a filter: a local time, or 15m, 24h and 7d ago. ValueError for others."""
    if not text:
        return None
    if match := RELATIVE.fullmatch(text):
        ago = timedelta(**{UNITS[match[2]]: int(match[1])})
        return moment(max(0, timing.now_ms() - ago // timedelta(milliseconds=1)))
    at = parse_datetime(text)
    if at is None:
        raise ValueError(f"invalid time {text!r}")
    try:
        return make_aware(at) if is_naive(at) else at
    except OverflowError as error:
        raise ValueError(f"invalid time {text!r}") from error


class TimeFilter(TextFilter):
    """Filter by a time that the user chooses."""

    input_type = "datetime-local"
    presets: tuple[tuple[str, Any], ...] = ()

    def time(self) -> datetime | None:
        """Return the time, or None if the filter is not set."""
        try:
            return read_time(self.value())
        except ValueError as error:
            raise IncorrectLookupParameters from error

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for context in super().choices(changelist):
            name = str(self.parameter_name)
            yield context | {
                "presets": [
                    (label, changelist.get_query_string({name: value}, [PAGE_VAR]))
                    for value, label in self.presets
                ]
            }


PRESETS = (
    ("1h", _("the last hour")),
    ("24h", _("the last 24 hours")),
    ("7d", _("the last 7 days")),
)


class EnqueuedSinceFilter(TimeFilter):
    title = _("enqueued since")
    parameter_name = "since"
    presets = PRESETS

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        first, _end = Message.objects.ids_enqueued(self.time(), None)
        return queryset.filter(pk__gte=first) if self.value() else queryset


class EnqueuedUntilFilter(TimeFilter):
    title = _("enqueued until")
    parameter_name = "until"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        _first, end = Message.objects.ids_enqueued(None, self.time())
        return queryset.filter(pk__lt=end) if self.value() else queryset


class DiedSinceFilter(TimeFilter):
    title = _("died since")
    parameter_name = "since"
    presets = PRESETS

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        at = self.time()
        return queryset.filter(finished_at__gte=at) if at else queryset


class DiedUntilFilter(TimeFilter):
    title = _("died until")
    parameter_name = "until"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        at = self.time()
        return queryset.filter(finished_at__lt=at) if at else queryset


class WorkerFilter(TextFilter):
    """Filter by the worker that has a message under a lease."""

    title = _("worker")
    parameter_name = "worker"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        worker = self.value()
        return queryset.filter(state=State.LOCKED, locked_by=worker) if worker else queryset


class ContentsFilter(TextFilter):
    """Filter by a text in the body or the errors; only find() can apply it."""

    title = _("text in body or errors")
    parameter_name = CONTAINS

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return no rows for an action on all that match, which would ignore this filter."""
        return queryset.none() if self.value() and selects_all(request) else queryset
