"""A queue's configuration, in the words and units of MQLITE['QUEUES']."""

from typing import Any

from django.contrib import admin
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..conf import get_settings
from ..models import Queue
from .read_only import ReadOnlyAdmin

FIELDSETS: list[tuple[Any, Any]] = [
    (None, {"fields": ["name", "kind", "paused", "declared"]}),
    (
        _("Delivery"),
        {
            "fields": [
                "ordering_mode",
                "lock_duration",
                "max_delivery_count",
                "backoff",
                "default_ttl",
                "dead_letter_on_expire",
                "dedup_window",
            ]
        },
    ),
    (
        _("Retention"),
        {"fields": ["retain_completed", "dlq_max_age", "dlq_max_count", "dlq_max_bytes"]},
    ),
    (_("History"), {"fields": ["created_at", "updated_at"]}),
]


class QueuePage(ReadOnlyAdmin):
    """The row is shown, not edited: the next migrate would undo what settings say otherwise."""

    fieldsets = FIELDSETS
    readonly_fields = [field for _name, options in FIELDSETS for field in options["fields"]]

    @admin.display(description=_("configured by"))
    def declared(self, queue: Queue) -> str:
        if queue.name in get_settings().queues:
            return gettext("MQLITE['QUEUES'] in the settings; change it there and run migrate")
        return gettext("Queue.objects.create_queue(), which also changes it")

    @admin.display(description=_("lock duration"))
    def lock_duration(self, queue: Queue) -> str:
        return seconds(queue.lock_duration_ms)

    @admin.display(description=_("backoff"))
    def backoff(self, queue: Queue) -> str:
        return gettext("from %(base)s, doubling up to %(most)s") % {
            "base": seconds(queue.backoff_base_ms),
            "most": seconds(queue.backoff_max_ms),
        }

    @admin.display(description=_("default time to live"))
    def default_ttl(self, queue: Queue) -> str:
        return seconds(queue.default_ttl_ms) if queue.default_ttl_ms else gettext("unlimited")

    @admin.display(description=_("deduplication window"))
    def dedup_window(self, queue: Queue) -> str:
        return seconds(queue.dedup_window_ms) if queue.dedup_window_ms else gettext("off")

    @admin.display(description=_("completed messages"))
    def retain_completed(self, queue: Queue) -> str:
        if not queue.retain_completed_ms:
            return gettext("deleted at once")
        return gettext("kept for %(time)s") % {"time": seconds(queue.retain_completed_ms)}

    @admin.display(description=_("dead letters: maximum age"))
    def dlq_max_age(self, queue: Queue) -> str:
        return _bound(queue.dlq_max_age_ms) or seconds(queue.dlq_max_age_ms)

    @admin.display(description=_("dead letters: maximum count"))
    def dlq_max_count(self, queue: Queue) -> str:
        return _bound(queue.dlq_max_count) or f"{queue.dlq_max_count:,}"

    @admin.display(description=_("dead letters: maximum bytes"))
    def dlq_max_bytes(self, queue: Queue) -> str:
        return _bound(queue.dlq_max_bytes) or f"{queue.dlq_max_bytes:,}"


def seconds(milliseconds: int) -> str:
    """The unit of the settings, so that what is read can be written there."""
    return f"{milliseconds / 1000:,.15g} s"


def _bound(value: int) -> str | None:
    """What 0 and -1 mean; None for a number that means itself."""
    return {0: gettext("the default"), -1: gettext("unbounded")}.get(value)
