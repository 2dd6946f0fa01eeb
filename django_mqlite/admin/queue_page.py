"""A queue's configuration, in the words and units of MQLITE['QUEUES']."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..conf import get_settings
from ..formatting import length
from ..models import Queue
from .queue_form import QueueForm
from .read_only import ReadOnlyAdmin

BEHIND_BACKOFF = ("default_ttl", "dead_letter_on_expire", "dedup_window")
RETENTION = ("retain_completed", "dlq_max_age", "dlq_max_count", "dlq_max_bytes")


def _fieldsets(*backoff: str) -> list[tuple[Any, Any]]:
    delivery = ("ordering_mode", "lock_duration", "max_delivery_count", *backoff, *BEHIND_BACKOFF)
    return [
        (None, {"fields": ("name", "kind", "paused", "declared")}),
        (_("Delivery"), {"fields": delivery}),
        (_("Retention"), {"fields": RETENTION}),
        (_("History"), {"fields": ("created_at", "updated_at")}),
    ]


SHOWN = _fieldsets("backoff")
EDITED = _fieldsets("backoff_base", "backoff_max")


class QueuePage(ReadOnlyAdmin):
    """Shown; and edited unless settings declare it: the next migrate would undo that."""

    form = QueueForm

    def has_change_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        if not (self.has_view_permission(request) and self.holds(request, "change_queue")):
            return False
        return obj is None or obj.name not in get_settings().queues

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[Any, Any]]:
        return EDITED if self.has_change_permission(request, obj) else SHOWN

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        readable = [SHOWN[0], SHOWN[3]] if self.has_change_permission(request, obj) else SHOWN
        return [field for _name, options in readable for field in options["fields"]]

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: bool) -> None:
        Queue.objects.declare(obj.name, form.config())

    def changeform_view(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
        try:
            return super().changeform_view(request, *args, **options)
        except (ImproperlyConfigured, OperationalError) as error:
            text = gettext("Nothing was changed: %(error)s") % {"error": error}
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

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


def retention(queue: Queue) -> list[str]:
    """How long the queue keeps what is over, in a few words each; the setting's bounds included."""
    default = get_settings()
    age = queue.dlq_max_age_ms or default.dlq_max_age_ms
    count = queue.dlq_max_count or default.dlq_max_count
    size = queue.dlq_max_bytes or default.dlq_max_bytes
    said = [
        gettext("completed: %(time)s") % {"time": length(queue.retain_completed_ms)}
        if queue.retain_completed_ms
        else gettext("completed: deleted at once")
    ]
    if age > 0:
        said.append(gettext("dead letters: %(time)s") % {"time": length(age)})
    if count > 0:
        said.append(gettext("dead letters: at most %(count)d") % {"count": count})
    if size > 0:
        said.append(gettext("dead letters: at most %(size)s") % {"size": filesizeformat(size)})
    return said


def seconds(milliseconds: int) -> str:
    """The unit of the settings, so that what is read can be written there."""
    return f"{milliseconds / 1000:,.15g} s"


def _bound(value: int) -> str | None:
    """What 0 and -1 mean; None for a number that means itself."""
    return {0: gettext("the default"), -1: gettext("unbounded")}.get(value)
