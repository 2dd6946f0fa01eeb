"""Admin of messages: the list, and a message's page with its buttons."""

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, register_converter
from django.urls.converters import IntConverter
from django.utils.translation import gettext_lazy as _

from ..exceptions import QueueNotFound
from ..formatting import state_label
from ..models import Message
from ..types import MAX_INTEGER, Page, clamped
from .actions import ACTIONS, Action, act_on_message, is_permitted
from .base import BaseAdmin, GroupFilter, QueueFilter, StateFilter
from .bulk_actions import act_on_many
from .columns import MessageColumns
from .filters import (
    CONTAINS,
    ContentsFilter,
    EnqueuedSinceFilter,
    EnqueuedUntilFilter,
    WorkerFilter,
    read_time,
)
from .forms import enqueue, may_enqueue, redrive_edited
from .message_page import sequence_number

LAST_CHARACTER = "\U0010ffff"


class SequenceNumberConverter(IntConverter):
    """A sequence number, which can be negative if another program wrote it."""

    regex = "-?[0-9]+"


register_converter(SequenceNumberConverter, "mqlite_id")


def _bulk_action(action: Action) -> Any:
    def run(
        model_admin: BaseAdmin, request: HttpRequest, queryset: QuerySet[Any]
    ) -> HttpResponseBase | None:
        return act_on_many(model_admin, request, queryset, action)

    run.__name__ = action.name
    return admin.action(run, description=action.label_for_selected)


class BaseMessageAdmin(MessageColumns):
    """Base of the message and dead-letter admins: the list, and the URLs of the actions."""

    actions = [_bulk_action(action) for action in ACTIONS.values()]

    # Enables the search; get_search_results() decides which columns are searched.
    search_fields = ["id"]
    search_help_text = _("Sequence number, message id, correlation id or beginning of the subject")
    list_display = ("id",)  # and the columns of get_list_display()
    change_list_template = "admin/django_mqlite/messages.html"

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        view = self.admin_site.admin_view
        act, body, edit = view(self.act), view(self.body), view(self.edit)
        return [
            *(
                path(f"<mqlite_id:id>/{action}/", act, {"name": action}, name=f"{name}_{action}")
                for action in ACTIONS
            ),
            path("<mqlite_id:id>/body/", body, name=f"{name}_body"),
            path("<mqlite_id:id>/edit/", edit, name=f"{name}_edit"),
            *super().get_urls(),
        ]

    def act(self, request: HttpRequest, id: int, name: str) -> HttpResponse:
        """Run the action of a button."""
        return act_on_message(self, request, id, ACTIONS[name])

    def edit(self, request: HttpRequest, id: int) -> HttpResponse:
        """Redrive a dead letter with an edited body."""
        return redrive_edited(self, request, id)

    # The list

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with a button for each action on all matching messages."""
        context = {
            "actions_for_all": self.offered_in_list(request),
            "looked_for": self.looked_for(request),
            "searches_contents": bool(request.GET.get(CONTAINS)),
        }
        response: Any = super().changelist_view(request, {**context, **(extra_context or {})})
        changelist = getattr(response, "context_data", {}).get("cl")
        is_search_alone = [name for name, value in request.GET.items() if value] == [SEARCH_VAR]
        if is_search_alone and changelist is not None and not changelist.result_list:
            response.context_data["gone"] = self._absence_of_searched(request)
        return response  # type: ignore[no-any-return]

    def looked_for(self, request: HttpRequest) -> list[tuple[Any, str]]:
        """Return label and value of the search and of each filter of the list."""
        filters: Any = self.get_list_filter(request)
        labels: dict[str, Any] = {SEARCH_VAR: _("search")}
        labels |= {list_filter.parameter_name: list_filter.title for list_filter in filters}
        return [
            (label, state_label(value) if name == "state" else value)
            for name, label in labels.items()
            if (value := request.GET.get(name))
        ]

    def _absence_of_searched(self, request: HttpRequest) -> str:
        """Return what became of the message whose number is searched, if it is gone."""
        number = sequence_number((request.GET.get(SEARCH_VAR) or "").strip())
        if number is None or self.get_queryset(request).filter(pk=clamped(number)).exists():
            return ""
        return f"#{number}: {self.absence_of(request, number)}"

    def offered_in_list(self, request: HttpRequest) -> list[Action]:
        """Return the actions that are possible in the state that the list is filtered by."""
        state = self.state_of_list(request)
        return [
            action
            for action in ACTIONS.values()
            if (not state or state in action.states) and is_permitted(self, request, action)
        ]

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Offer only the actions of offered_in_list().

        `action_location` exists since Django 6.1.
        """
        location = () if action_location is None else (action_location,)
        offered = {action.name for action in self.offered_in_list(request)}
        return {
            name: action
            for name, action in super().get_actions(request, *location).items()
            if name in offered or name not in ACTIONS
        }

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Add the filter by contents for users who may see them as they are stored."""
        filters = super().get_list_filter(request)
        return [*filters, ContentsFilter] if self.content_view(request).is_unmasked else filters

    def find(self, request: HttpRequest, queryset: QuerySet[Any], position: str | None) -> Page:
        """Use Message.objects.find(), and the query set for what it has no criteria for."""
        values = {name: request.GET.get(name) or None for name in ("queue", "group", CONTAINS)}
        has_other_filters = any(map(request.GET.get, self.filters_of_query_set))
        if has_other_filters and self.fixed_state and not values[CONTAINS]:
            return super().find(request, queryset, position)
        is_partial = has_other_filters or self.is_restricted(request)
        try:
            return Message.objects.find(
                queue=values["queue"],
                state=self.fixed_state or request.GET.get("state") or None,
                group=values["group"],
                text=(request.GET.get(SEARCH_VAR) or "").strip() or None,
                containing=values[CONTAINS],
                among=queryset if is_partial else None,
                limit=self.list_per_page,
                after=position,
                **self.times(request),
            )
        except QueueNotFound:
            return Page(ids=(), next=None)

    filters_of_query_set: tuple[str, ...] = ()
    """The filters that find() has no criteria for."""

    def times(self, request: HttpRequest) -> dict[str, datetime | None]:
        """Return the times of enqueueing for find()."""
        return {}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Apply the search of find(), for actions on all matching messages."""
        term = search_term.strip()
        if not term:
            return queryset, False
        matches = Q(message_id=term) | Q(correlation_id=term)
        matches |= Q(subject__gte=term, subject__lt=term + LAST_CHARACTER)
        if term.isascii() and term.isdecimal() and len(term) <= len(str(MAX_INTEGER)):
            matches |= Q(pk=int(term)) if int(term) <= MAX_INTEGER else Q()
        return queryset.filter(matches), False


class MessageAdmin(BaseMessageAdmin):
    """All messages, newest first; the list of one queue or state is in delivery order."""

    ordering = ("-id",)
    list_filter = (
        QueueFilter, StateFilter, EnqueuedSinceFilter, EnqueuedUntilFilter, GroupFilter,
        WorkerFilter,
    )  # fmt: skip
    filters_of_query_set = ("worker",)

    def times(self, request: HttpRequest) -> dict[str, datetime | None]:
        return {name: read_time(request.GET.get(name)) for name in ("since", "until")}

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_enqueue"
        view = self.admin_site.admin_view(self.enqueue)
        return [path("enqueue/", view, name=name), *super().get_urls()]

    def enqueue(self, request: HttpRequest) -> HttpResponse:
        """Enqueue a message that is typed into a form."""
        return enqueue(self, request)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with a link to the form of a new message."""
        context = {"enqueue_url": self.url("enqueue")} if may_enqueue(self, request) else {}
        return super().changelist_view(request, {**context, **(extra_context or {})})
