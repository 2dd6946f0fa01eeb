"""The columns of the lists of messages, which depend on the state that a list is filtered by."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.timezone import localtime
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..formatting import format_duration, format_progress, short_error, state_label
from ..models import Message
from ..timing import epoch_ms
from ..types import State
from ..verbs.find import last_error_text
from .content import content_of
from .formatting import printable, readable_json, shortened
from .message_page import MessagePage

EMPTY = "–"

COLUMNS: dict[str, Sequence[str]] = {
    "": ("listed_state", "short_subject", "group_id", "delivery_count", "enqueued"),
    State.ACTIVE: ("short_subject", "group_id", "behind", "delivery_count", "due"),
    State.LOCKED: ("short_subject", "worker", "held", "shown_progress", "delivery_count"),
    State.SCHEDULED: ("short_subject", "due", "last_error", "delivery_count"),
    State.DEFERRED: ("short_subject", "group_id", "delivery_count", "enqueued"),
    State.COMPLETED: ("short_subject", "completed", "listed_result", "delivery_count"),
    State.DEAD_LETTERED: ("short_subject", "error", "dead_letter_reason", "delivery_count", "died"),
}
"""The columns of a list after the number and the queue, by its state; "" for all states."""

ERRORS = ("last_error", "error")
FIELDS = {
    "listed_state": ("state", "blocked", "delivery_count"),
    "short_subject": ("subject",),
    "behind": ("blocked",),
    "enqueued": ("enqueued_at",),
    "due": ("visible_at",),
    "worker": ("locked_by",),
    "held": ("locked_at", "locked_until"),
    "shown_progress": ("progress",),
    "last_error": ("error_class",),
    "completed": ("finished_at",),
    "listed_result": ("result",),
    "error": ("error_class", "dead_letter_description"),
    "died": ("finished_at",),
}
"""The fields that a column reads, unless it is a field."""


def age(at: datetime | None) -> str | None:
    """Return how long ago or ahead the time is, with the time as a tooltip."""
    if at is None:
        return None
    ms = timing.now_ms() - epoch_ms(at)
    text = gettext("%(time)s ago") if ms >= 0 else gettext("in %(time)s")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        f"{localtime(at):%Y-%m-%d %H:%M:%S %Z}",
        text % {"time": format_duration(ms)},
    )


class MessageColumns(MessagePage):
    """The columns of a list of messages."""

    fixed_state: str = ""
    """The state of all messages of the list, if they have the same."""

    def state_of_list(self, request: HttpRequest) -> str:
        state = self.fixed_state or request.GET.get("state", "")
        return state if state in COLUMNS else ""

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns for the state; a queue that the list is filtered by is not one."""
        queue = () if request.GET.get("queue") else ("queue",)
        return ("id", *queue, *COLUMNS[self.state_of_list(request)])

    def get_page_queryset(self, request: HttpRequest) -> Any:
        columns = COLUMNS[self.state_of_list(request)]
        fields = {field for column in columns for field in FIELDS.get(column, (column,))}
        rows = self.get_queryset(request).only("id", "queue", *sorted(fields))
        has_error = not {*columns}.isdisjoint(ERRORS)
        return rows.annotate(last_error_text=last_error_text()) if has_error else rows

    def rows_of(self, request: HttpRequest, ids: Sequence[Any]) -> list[Model]:
        rows: list[Any] = super().rows_of(request, ids)
        for message in rows:
            message.content_view = self.content_view(request, message)
        if "behind" in COLUMNS[self.state_of_list(request)]:
            heads = Message.objects.heads_of([row.pk for row in rows if row.blocked])
            for message in rows:
                message.head = heads.get(message.pk)
        return rows

    @admin.display(description=_("state"))
    def listed_state(self, message: Message) -> str:
        """Return the state, or that the message waits for a retry or behind another message."""
        if message.state == State.SCHEDULED and message.delivery_count:
            return gettext("retrying")
        if message.state == State.ACTIVE and message.blocked:
            return gettext("blocked")
        return state_label(message.state)

    @admin.display(description=_("subject"), empty_value=EMPTY)
    def short_subject(self, message: Message) -> str | None:
        return shortened(message.subject)

    @admin.display(description=_("behind"), empty_value=EMPTY)
    def behind(self, message: Any) -> str | None:
        """Return a link to the message that this one waits for."""
        if message.head is None:
            return None
        return format_html('<a href="{}">#{}</a>', self.url("change", message.head), message.head)

    @admin.display(description=_("enqueued"))
    def enqueued(self, message: Message) -> str | None:
        return age(message.enqueued_at)

    @admin.display(description=_("due"))
    def due(self, message: Message) -> str | None:
        return age(message.visible_at)

    @admin.display(description=_("worker"), empty_value=EMPTY)
    def worker(self, message: Message) -> str | None:
        return self.linked_worker(message) if message.locked_by else None

    @admin.display(description=_("held for"))
    def held(self, message: Message) -> str:
        now = timing.now_ms()
        since = epoch_ms(message.locked_at) if message.locked_at else now
        text = format_duration(now - since)
        if message.locked_until and epoch_ms(message.locked_until) <= now:
            return gettext("%(time)s, expired") % {"time": text}
        return text

    @admin.display(description=_("progress"), empty_value=EMPTY)
    def shown_progress(self, message: Message) -> str | None:
        text = format_progress(message.progress)
        return printable(text) if text else None

    @admin.display(description=_("completed"))
    def completed(self, message: Message) -> str | None:
        return age(message.finished_at)

    @admin.display(description=_("result"), empty_value=EMPTY)
    def listed_result(self, message: Message) -> str | None:
        if message.result is None:
            return None
        text = content_of(message).shown(readable_json(message.result), message, "result")
        return gettext("hidden") if text is None else shortened(" ".join(text.split()))

    @admin.display(description=_("died"))
    def died(self, message: Message) -> str | None:
        return age(message.finished_at)

    @admin.display(description=_("last error"), empty_value=EMPTY)
    def last_error(self, message: Any) -> str | None:
        """Return the last recorded error with its class."""
        text = message.last_error_text
        text = text and content_of(message).shown(text, message, "error")
        return shortened(short_error(message.error_class, text))

    @admin.display(description=_("error"), empty_value=EMPTY)
    def error(self, letter: Any) -> str | None:
        """Return the last error with its class, and the description unless it is the same text."""
        text, description = letter.last_error_text, letter.dead_letter_description
        if description in (text, short_error(letter.error_class, text)):
            description = None
        description = description and content_of(letter).shown(description, letter, "error")
        texts = (self.last_error(letter), shortened(description))
        return " – ".join(filter(None, texts)) or None
