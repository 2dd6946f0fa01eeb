"""Filters whose choices are known beforehand: no DISTINCT over the messages."""

from typing import Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..models import Queue
from ..types import State


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
    """By state."""

    title = _("state")
    parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: "ModelAdmin[Any]"
    ) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in State]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() else queryset
