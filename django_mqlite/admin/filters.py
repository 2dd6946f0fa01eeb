"""Filters whose choices are known beforehand or typed in: no DISTINCT over the messages."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from ..models import Queue
from ..task_facts import STATUSES
from ..types import State
from .words import STATES


class QueueFilter(admin.SimpleListFilter):
    """By queue; the names are those of the queues, whether or not they hold a message."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(
        self, request: HttpRequest, model_admin: "ModelAdmin[Any]"
    ) -> list[tuple[str, str]]:
        names = Queue.objects.order_by("name").values_list("name", flat=True)
        return [(name, name) for name in names]

    def has_output(self) -> bool:
        return True  # also where there is one queue, so that a link to it says what it filters by

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(queue=self.value()) if self.value() else queryset


class StateFilter(admin.SimpleListFilter):
    """By state, which is also the status of a task."""

    title = _("state")
    parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: "ModelAdmin[Any]"
    ) -> list[tuple[str, Any]]:
        return [
            (state.value, format_lazy("{} ({})", STATES[state], STATUSES[state])) for state in State
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() else queryset


class TextFilter(admin.SimpleListFilter):
    """By a text that is typed in, exactly."""

    template = "admin/django_mqlite/text_filter.html"
    column: str

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> list[Any]:
        return []

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """What the form needs: its own value, and what else the list is filtered by."""
        mine = (self.parameter_name, PAGE_VAR)
        yield {
            "name": self.parameter_name,
            "value": self.value() or "",
            "others": [item for item in changelist.params.items() if item[0] not in mine],
            "without": changelist.get_query_string(remove=[str(self.parameter_name)]),
        }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset


class GroupFilter(TextFilter):
    """By group."""

    title = _("group")
    parameter_name = "group"
    column = "group_id"


class ReasonFilter(TextFilter):
    """By what a dead letter died of."""

    title = _("reason")
    parameter_name = "reason"
    column = "dead_letter_reason"
