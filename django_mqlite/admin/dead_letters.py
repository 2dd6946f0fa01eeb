"""Admin of dead letters: the list, with actions on a selection or on all that match."""

from typing import Any

from django.contrib.admin.views.main import PAGE_VAR
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext

from ..exceptions import QueueNotFound
from ..models import DeadLetter, Message
from ..types import State, clamped
from .base import ErrorClassFilter, GroupFilter, QueueFilter, ReasonFilter
from .filters import DiedSinceFilter, DiedUntilFilter
from .formatting import shortened
from .messages import BaseMessageAdmin

SHOWN_ERRORS = 8
"""The most classes of errors above the list."""


class DeadLetterAdmin(BaseMessageAdmin):
    """Dead letters, the most recent first."""

    fixed_state = State.DEAD_LETTERED
    list_filter = (
        QueueFilter, ErrorClassFilter, ReasonFilter, DiedSinceFilter, DiedUntilFilter, GroupFilter,
    )  # fmt: skip
    filters_of_query_set = ("reason", "error_class", "since", "until")
    ordering = ("-finished_at", "-id")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with the number of dead letters for each class of errors."""
        context = {"error_counts": self._error_counts(request)}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def _error_counts(self, request: HttpRequest) -> list[tuple[str, str, int]]:
        """Return label, URL and count of the dead letters with each class of errors.

        There are none if the list has other filters than the queue, which the counts would ignore,
        or if the user may not view every dead letter.
        """
        filters = {name for name, value in request.GET.items() if value} - {"queue", PAGE_VAR}
        if filters or self.is_restricted(request):
            return []
        queue = request.GET.get("queue") or None
        try:
            counts = DeadLetter.objects.count_by_error(queue, limit=SHOWN_ERRORS)
        except (QueueNotFound, ValueError):
            return []
        kept = {"queue": queue} if queue else {}
        rows = []
        for count in counts:
            label = count.error_class or count.reason or gettext("no recorded error")
            name = ErrorClassFilter.parameter_name if count.error_class else "reason"
            query = urlencode({**kept, name: count.error_class or count.reason or ""})
            rows.append((shortened(label) or label, f"?{query}", count.dead_letters))
        return rows

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the message's history, because actions are logged for the message."""
        view = "admin:django_mqlite_message_history"
        return redirect(reverse(view, args=[object_id], current_app=self.admin_site.name))

    def render_gone(self, request: HttpRequest, number: int) -> HttpResponse:
        """Redirect to the message's page if it is not a dead letter."""
        others = Message.objects.filter(pk=clamped(number)).exclude(state=State.DEAD_LETTERED)
        if others.exists():
            view = "admin:django_mqlite_message_change"
            return redirect(reverse(view, args=[number], current_app=self.admin_site.name))
        return super().render_gone(request, number)
