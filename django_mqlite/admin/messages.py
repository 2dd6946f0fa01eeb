"""Admin of messages: the list, and a message's page with its buttons."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, register_converter
from django.urls.converters import IntConverter
from django.utils.translation import gettext_lazy as _

from ..exceptions import QueueNotFound
from ..models import Message
from ..types import MAX_INTEGER, Page
from .actions import ACTIONS, Action, act_on_message, is_permitted
from .base import BaseAdmin, GroupFilter, QueueFilter, StateFilter
from .bulk_actions import act_on_many
from .formatting import shortened
from .forms import enqueue, may_enqueue, redrive_edited
from .message_page import MessagePage

EMPTY = "–"
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


class BaseMessageAdmin(MessagePage):
    """Base of the message and dead-letter admins: the list, and the URLs of the actions."""

    actions = [_bulk_action(action) for action in ACTIONS.values()]

    # Enables the search; get_search_results() decides which columns are searched.
    search_fields = ["id"]
    search_help_text = _("Sequence number, message id, correlation id or beginning of the subject")
    fixed_filters: Mapping[str, str] = {}
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

    def rows_of(self, request: HttpRequest, ids: Sequence[Any]) -> list[Model]:
        rows: list[Any] = super().rows_of(request, ids)
        for message in rows:
            message.content_view = self.content_view(request, message)
        return rows

    # The list

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with a button for each action on all matching messages."""
        context = {"actions_for_all": self.offered_in_list(request)}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def offered_in_list(self, request: HttpRequest) -> list[Action]:
        """Return the actions that are possible in the state that the list is filtered by."""
        state = self.fixed_filters.get("state") or request.GET.get("state")
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

    def find(self, request: HttpRequest, queryset: QuerySet[Any], position: str | None) -> Page:
        """Use Message.objects.find(), unless a filter is set that only dead letters have."""
        if request.GET.get("reason") or request.GET.get("error_class"):
            return super().find(request, queryset, position)
        filters = {name: request.GET.get(name) or None for name in ("queue", "state", "group")}
        try:
            return Message.objects.find(
                **{**filters, **self.fixed_filters},
                text=(request.GET.get(SEARCH_VAR) or "").strip() or None,
                limit=self.list_per_page,
                after=position,
            )
        except QueueNotFound:
            return Page(ids=(), next=None)

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

    # Columns

    @admin.display(description=_("subject"), empty_value=EMPTY)
    def short_subject(self, message: Message) -> str | None:
        return shortened(message.subject)


class MessageAdmin(BaseMessageAdmin):
    """All messages, newest first; the list of one queue or state is in delivery order."""

    list_display = (
        "id", "queue", "shown_state", "short_subject", "group_id", "delivery_count", "enqueued_at",
    )  # fmt: skip
    ordering = ("-id",)
    list_filter = (QueueFilter, StateFilter, GroupFilter)

    def get_list_display(self, request: HttpRequest) -> Any:
        """Add the progress to the list of locked messages."""
        columns = super().get_list_display(request)
        return (*columns, "shown_progress") if request.GET.get("state") == "locked" else columns

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

    def get_page_queryset(self, request: HttpRequest) -> Any:
        return self.get_queryset(request).only(
            "id", "queue", "state", "subject", "group_id", "delivery_count", "enqueued_at",
            "progress",
        )  # fmt: skip
