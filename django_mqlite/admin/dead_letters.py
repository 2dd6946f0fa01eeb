"""Admin of dead letters: the list, with actions on a selection or on all that match."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from ..models import DeadLetter
from ..types import State
from .actions import PURGE, REDRIVE, act_on_dead_letters
from .base import GroupFilter, QueueFilter, ReasonFilter
from .formatting import shortened
from .messages import EMPTY, BaseMessageAdmin


class DeadLetterAdmin(BaseMessageAdmin):
    """Dead letters, the most recent first."""

    list_display = (
        "id", "queue", "short_subject", "group_id", "dead_letter_reason", "error",
        "delivery_count", "finished_at",
    )  # fmt: skip
    fixed_filters = {"state": State.DEAD_LETTERED}
    list_filter = (QueueFilter, ReasonFilter, GroupFilter)
    ordering = ("-finished_at", "-id")
    actions = ("redrive", "purge")
    change_list_template = "admin/django_mqlite/dead_letters.html"

    def get_page_queryset(self) -> Any:
        return DeadLetter.objects.with_last_error().only(
            "id", "queue", "subject", "group_id", "dead_letter_reason", "dead_letter_description",
            "delivery_count", "finished_at",
        )  # fmt: skip

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with a button for each action on all matching dead letters."""
        allowed = self.get_actions(request)
        actions = [action for action in (REDRIVE, PURGE) if action.name in allowed]
        return super().changelist_view(
            request, {"actions_for_all": actions, **(extra_context or {})}
        )

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the message's history, because actions are logged for the message."""
        view = "admin:django_mqlite_message_history"
        return redirect(reverse(view, args=[object_id], current_app=self.admin_site.name))

    # The permissions belong to Message, of which this model is a proxy.
    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, REDRIVE.permission)

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, PURGE.permission)

    @admin.action(description=_("Redrive selected dead letters"), permissions=["redrive"])
    def redrive(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        return act_on_dead_letters(self, request, queryset, REDRIVE)

    @admin.action(description=_("Purge selected dead letters"), permissions=["purge"])
    def purge(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        return act_on_dead_letters(self, request, queryset, PURGE)

    @admin.display(description=_("error"), empty_value=EMPTY)
    def error(self, letter: Any) -> str | None:
        """Return the dead letter's description, and its last error unless it is the same text."""
        texts = dict.fromkeys(filter(None, (letter.dead_letter_description, letter.last_error)))
        return " – ".join(filter(None, map(shortened, texts))) or None
