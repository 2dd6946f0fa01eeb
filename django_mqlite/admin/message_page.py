"""What the lists and pages of messages and of dead letters share."""

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import clock
from ..fields import moment
from ..models import Message, Queue
from ..types import MAX_INTEGER, State
from .failed_deliveries import failed_deliveries
from .read_only import ReadOnlyAdmin
from .readable import printable, readable_body, readable_json

PREVIEW = 60

FIELDSETS: list[tuple[Any, Any]] = [
    (None, {"fields": ["id", "queue", "state", "subject", "priority", "group_id"]}),
    (_("Content"), {"fields": ["content_type", "body_shown", "properties_shown"]}),
    (_("Delivery"), {"fields": ["enqueued_at", "visible_at", "expires_at", "deliveries", "lease"]}),
    (
        _("Ending"),
        {
            "fields": [
                "finished_at",
                "dead_letter_reason",
                "dead_letter_description",
                "result_shown",
            ]
        },
    ),
    (_("Failed deliveries"), {"fields": ["errors_shown"]}),
    (_("References"), {"fields": ["message_id", "correlation_id", "reply_to"]}),
]


class MessagePage(ReadOnlyAdmin):
    """A message by its sequence number, with everything known of it except its lock token."""

    fieldsets = FIELDSETS
    readonly_fields = [field for _name, options in FIELDSETS for field in options["fields"]]
    # Says that there is a search; what it looks at is in get_search_results().
    search_fields = ["id"]
    search_help_text = _("Sequence number, message id, correlation id or part of the subject")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # Whoever has the token can settle the message: it is not even read.
        return super().get_queryset(request).defer("lock_token")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By id or message id through an index; only if that finds nothing through the rows."""
        term = search_term.strip()
        if not term:
            return queryset, False
        exact = queryset.filter(Q(message_id=term) | _is_id(term))
        if exact.exists():
            return exact, False
        return queryset.filter(Q(correlation_id=term) | Q(subject__icontains=term)), False

    @admin.display(description=_("subject"), empty_value="–")
    def short_subject(self, message: Message) -> str | None:
        return shortened(message.subject)

    @admin.display(description=_("body"))
    def body_shown(self, message: Message) -> SafeString:
        return preformatted(readable_body(bytes(message.body), message.content_type))

    @admin.display(description=_("properties"), empty_value="–")
    def properties_shown(self, message: Message) -> SafeString | None:
        return preformatted(readable_json(message.properties)) if message.properties else None

    @admin.display(description=_("result"), empty_value="–")
    def result_shown(self, message: Message) -> SafeString | None:
        return None if message.result is None else preformatted(readable_json(message.result))

    @admin.display(description=_("deliveries"))
    def deliveries(self, message: Message) -> str:
        """How many of how many; the bound is the message's own, else its queue's."""
        bound = message.max_delivery_count or (
            Queue.objects.filter(name=message.queue)
            .values_list("max_delivery_count", flat=True)
            .first()
        )
        return gettext("%(count)s of %(bound)s") % {"count": message.delivery_count, "bound": bound}

    @admin.display(description=_("lease"), empty_value="–")
    def lease(self, message: Message) -> str | None:
        if message.state != State.LOCKED:
            return None
        worker = printable(message.locked_by or gettext("unnamed worker"))
        left = (message.locked_until or _now()) - _now()
        facts = {"worker": worker, "time": f"{abs(left) / timedelta(seconds=1):,.0f} s"}
        if left > timedelta(0):
            return gettext("%(worker)s, for another %(time)s") % facts
        return gettext("%(worker)s, ran out %(time)s ago and waits for the reaper") % facts

    @admin.display(description=_("failed deliveries"), empty_value="–")
    def errors_shown(self, message: Message) -> SafeString | None:
        return failed_deliveries(message.errors) if message.errors else None


def shortened(text: str | None) -> str | None:
    """The beginning of a text, for a list."""
    return Truncator(printable(text)).chars(PREVIEW) if text else None


def preformatted(text: str) -> SafeString:
    """The text as it is, escaped; a long line scrolls instead of widening the page."""
    return format_html('<pre style="overflow-x: auto; max-width: 100%">{}</pre>', text)


def _is_id(term: str) -> Q:
    is_number = term.isascii() and term.isdecimal() and int(term) <= MAX_INTEGER
    return Q(pk=int(term)) if is_number else Q()


def _now() -> Any:
    return moment(clock.now_ms())
