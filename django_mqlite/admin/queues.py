"""Queues: how deep, how configured, paused or not."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.db import OperationalError
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.timesince import timesince
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .. import clock
from ..fields import EPOCH, moment
from ..models import Queue
from ..transactions import write_transaction
from ..types import State
from .log import log
from .queue_page import QueuePage


def depth(state: State, label: Any) -> Callable[[Any], Any]:
    """The column that counts the messages in `state`, with a link to them."""

    @admin.display(description=label)
    def column(queue: Any) -> Any:
        count = queue.stats.counts[state]
        if not count:
            return 0
        url = reverse("admin:django_mqlite_message_changelist")
        query = urlencode({"queue": queue.name, "state": state.value})
        return format_html('<a href="{}?{}">{}</a>', url, query, count)

    return column


DEPTHS = (
    depth(State.ACTIVE, _("active")),
    depth(State.LOCKED, _("locked")),
    depth(State.SCHEDULED, _("scheduled")),
    depth(State.DEFERRED, _("deferred")),
    depth(State.DEAD_LETTERED, _("dead-lettered")),
    depth(State.COMPLETED, _("completed")),
)


class QueueAdmin(QueuePage):
    """One row per queue, with its depth by state; pause and resume."""

    list_display = ("name", "ordering_mode", "paused", *DEPTHS, "waiting_for")
    ordering = ("name",)
    search_fields = ("name",)
    actions = ("pause", "resume")

    def page_of(self, ids: Sequence[Any]) -> list[Model]:
        """The queues of the page, each with its `stats`: one statement for all."""
        queues: list[Any] = super().page_of(ids)
        stats = {each.queue: each for each in Queue.objects.stats()}
        for queue in queues:
            queue.stats = stats[queue.name]
        return queues

    @admin.display(description=_("oldest has waited"), empty_value="–")
    def waiting_for(self, queue: Any) -> str | None:
        since = queue.stats.due_since_ms
        if not since:
            return None
        return timesince(EPOCH + timedelta(milliseconds=since), moment(clock.now_ms()))

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return self._holds(request, "pause_queue")

    @admin.action(description=_("Pause: nobody can claim"), permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self._set_paused(request, queryset, paused=True)

    @admin.action(description=_("Resume: claims go on"), permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        self._set_paused(request, queryset, paused=False)

    def _set_paused(self, request: HttpRequest, queues: QuerySet[Queue], *, paused: bool) -> None:
        """The change and its log entries are one transaction."""
        try:
            with write_transaction(Queue.objects.using_alias):
                changed = [queue for queue in queues if Queue.objects.set_paused(queue, paused)]
                log(request, changed, CHANGE, "Paused." if paused else "Resumed.")
        except OperationalError as error:
            text = gettext("The database refused, nothing was changed: %(error)s")
            self.message_user(request, text % {"error": error}, messages.ERROR)
        else:
            self.message_user(request, _said(len(changed), paused=paused), messages.SUCCESS)


def _said(count: int, *, paused: bool) -> str:
    if paused:
        text = ngettext("%(count)d queue was paused.", "%(count)d queues were paused.", count)
    else:
        text = ngettext("%(count)d queue was resumed.", "%(count)d queues were resumed.", count)
    return text % {"count": count}
