"""Admin of recurring schedules: next and last runs, pausing, resuming and running now."""

from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import BadRequest, ImproperlyConfigured, PermissionDenied
from django.db import OperationalError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..exceptions import MqliteError
from ..formatting import state_label
from ..models import Schedule
from ..transactions import write_transaction
from ..types import Explanation, ScheduleStatus
from .base import BaseAdmin, log, nothing_changed
from .formatting import printable

KEY_PREFIX = "schedule:"
"""The beginning of the keys of the records of schedules."""


class ScheduleAdmin(BaseAdmin):
    """The schedules that the project's code declares, instead of a list of their records."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """Exclude the rows of the same table that are not records of schedules."""
        return super().get_queryset(request).filter(key__startswith=KEY_PREFIX)

    def every_row(self) -> QuerySet[Schedule]:
        return Schedule.objects.filter(key__startswith=KEY_PREFIX)

    def change_view(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
        """Redirect to the page of all schedules, for links from the admin log."""
        return HttpResponseRedirect(self.url("changelist"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show every schedule; run an action on POST."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            self._act(request)
            return HttpResponseRedirect(self.url("changelist"))
        context = {
            **self._schedules(request),
            "can_pause": self.holds(request, "pause_schedule"),
            "can_run": self.holds(request, "run_schedule"),
            "can_view_messages": self.holds(request, "view_message"),
        }
        title = _("Recurring schedules")
        context |= extra_context or {}
        return self.render(request, "schedules", title=title, is_list=True, **context)

    def _schedules(self, request: HttpRequest) -> dict[str, Any]:
        try:
            statuses = Schedule.objects.statuses()
        except (MqliteError, ImproperlyConfigured) as error:  # the project's code is broken
            return {"rows": [], "error": str(error)}
        return {
            "rows": [_row(status) for status in statuses if self._is_visible(request, status.name)]
        }

    def _is_visible(self, request: HttpRequest, name: str) -> bool:
        """Return whether the user may view the schedule, which may not have a record yet."""
        key = f"{KEY_PREFIX}{name}"
        if not self.has_view_permission(request, Schedule(key=key)):
            return False
        return not self.is_restricted(request) or self.get_queryset(request).filter(pk=key).exists()

    def _act(self, request: HttpRequest) -> None:
        name, action = request.POST.get("schedule", ""), request.POST.get("action", "")
        if action not in ACTIONS:
            raise BadRequest("invalid action")
        permission, act = ACTIONS[action]
        if not (self.holds(request, permission) and self._is_visible(request, name)):
            raise PermissionDenied
        try:
            with write_transaction(Schedule.objects.database):
                done, refused, entry = act(name)
                if done:
                    log(request, [Schedule(key=f"{KEY_PREFIX}{name}")], CHANGE, entry)
        except (MqliteError, ImproperlyConfigured, OperationalError, ValueError) as error:
            self.message_user(request, nothing_changed(error), messages.ERROR)
            return
        text = (done or refused) % {"name": name}
        self.message_user(request, text, messages.SUCCESS if done else messages.WARNING)


Done = tuple[str, str, str]
"""The text of a success or '', the text of a refusal, and the entry of the admin log."""


def _pause(name: str) -> Done:
    done = Schedule.objects.pause(name)
    text = gettext("Schedule %(name)s paused.") if done else ""
    return text, gettext("Schedule %(name)s was already paused."), "Paused."


def _resume(name: str) -> Done:
    done = Schedule.objects.resume(name)
    text = gettext("Schedule %(name)s resumed.") if done else ""
    return text, gettext("Schedule %(name)s was not paused."), "Resumed."


def _run(name: str) -> Done:
    message = Schedule.objects.run_now(name)
    refused = gettext("Schedule %(name)s not run: its previous message is unfinished.")
    if message is None:
        return "", refused, ""
    text = gettext("Message #%(id)d enqueued for schedule %%(name)s.") % {"id": message.pk}
    return text, refused, f"Run now as message #{message.pk}."


ACTIONS = {
    "pause": ("pause_schedule", _pause),
    "resume": ("pause_schedule", _resume),
    "run": ("run_schedule", _run),
}
"""The actions, each with the permission that it needs."""


def _row(status: ScheduleStatus) -> dict[str, Any]:
    outcome = status.last_outcome
    return {
        "status": status,
        "target": printable(status.target),
        "explanation": printable(status.explanation.text),
        "last_state": _became(outcome) if outcome else "",
        "exists": bool(outcome and outcome.facts["state"]),
    }


def _became(outcome: Explanation) -> str:
    """Return the state of the last message, or what became of it if it no longer exists."""
    state = outcome.facts["state"]
    return state_label(state) if state else printable(outcome.text)
