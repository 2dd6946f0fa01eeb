"""Admin of queues: the overview, pausing and resuming, and the form of a queue's options."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.db import OperationalError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from ..conf import get_settings
from ..limits import read_rate
from ..models import Queue
from ..transactions import write_transaction
from ..types import MAX_INTEGER, QueueConfig
from .base import BaseAdmin, log, nothing_changed
from .overview import overview

DELIVERY = (
    "ordering_mode", "lock_duration_ms", "max_delivery_count", "backoff_base_ms", "backoff_max_ms",
    "default_ttl_ms", "dead_letter_on_expire", "dedup_window_ms", "max_in_flight", "rate",
)  # fmt: skip
RETENTION = ("retain_completed_ms", "dlq_max_age_ms", "dlq_max_count", "dlq_max_bytes")
LIMIT_LABELS = {0: _("from MQLITE in the settings"), -1: _("unlimited")}


class LimitField(forms.FloatField):
    """A limit on dead letters: empty uses the setting (0 in the row), -1 means unlimited."""

    factor = 1
    """Units of the row per unit of the form."""

    def __init__(self, **options: Any) -> None:
        options |= {"required": False, "min_value": None, "max_value": None}
        super().__init__(**options)
        self.help_text = _("Leave empty to use the setting; -1 means unlimited.")

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        if value <= 0:
            return -1 if value else None
        return value / self.factor if value % self.factor else value // self.factor

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)

    def clean(self, value: Any) -> int:
        number = super().clean(value)
        if number is None:
            return 0
        if number == -1:
            return -1
        if not 1 <= number * self.factor <= MAX_INTEGER // 2:
            raise ValidationError(_("Enter a number above 0, -1 for unlimited, or leave it empty."))
        return int(number * self.factor)


class AgeLimitField(LimitField):
    """A limit in seconds, stored in milliseconds."""

    factor = 1000


class RateField(forms.CharField):
    """A rate such as 100/min; its value is a Rate, or None if the field is empty."""

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        try:
            return read_rate(text, "rate") if text else None
        except ValueError as error:
            raise ValidationError(str(error)) from error


class QueueForm(forms.ModelForm):  # type: ignore[type-arg]
    rate = RateField(
        label=_("Rate"),
        required=False,
        max_length=50,
        help_text=_("For example 100/min, 10/s or 1/30s; leave empty for no limit."),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.initial["rate"] = str(self.instance.rate or "")

    def clean(self) -> Any:
        rate = self.cleaned_data.get("rate")
        self.instance.rate_count = rate.count if rate else 0
        self.instance.rate_period_ms = rate.period_ms if rate else 0
        return super().clean()

    class Meta:
        field_classes: Mapping[str, type[forms.Field]] = {
            "dlq_max_age_ms": AgeLimitField,
            "dlq_max_count": LimitField,
            "dlq_max_bytes": LimitField,
        }


def _readable(
    column: str, *, is_duration: bool = True, labels: Mapping[int, Any] | None = None
) -> Callable[..., str]:
    """Return an admin display of an option: its label in `labels`, or the number.

    Durations are in seconds, as in MQLITE["QUEUES"].
    """

    field: Any = Queue._meta.get_field(column)

    @admin.display(description=field.verbose_name)
    def display(model_admin: Any, queue: Queue) -> str:
        value = getattr(queue, column)
        if labels is not None and value in labels:
            return str(labels[value])
        return f"{value / 1000:,.15g} s" if is_duration else f"{value:,}"

    return display


class QueueAdmin(BaseAdmin):
    """The overview instead of a list, and a page for each queue.

    Queues declared in the settings cannot be edited: the next migrate would undo the change.
    """

    form = QueueForm
    ordering = ("name",)
    actions = ("pause", "resume")

    lock_duration_ms_shown = _readable("lock_duration_ms")
    backoff_base_ms_shown = _readable("backoff_base_ms")
    backoff_max_ms_shown = _readable("backoff_max_ms")
    default_ttl_ms_shown = _readable("default_ttl_ms", labels={0: _("unlimited")})
    dedup_window_ms_shown = _readable("dedup_window_ms", labels={0: _("off")})
    retain_completed_ms_shown = _readable(
        "retain_completed_ms", labels={0: _("deleted immediately")}
    )
    max_in_flight_shown = _readable("max_in_flight", is_duration=False, labels={0: _("unlimited")})
    dlq_max_age_ms_shown = _readable("dlq_max_age_ms", labels=LIMIT_LABELS)
    dlq_max_count_shown = _readable("dlq_max_count", is_duration=False, labels=LIMIT_LABELS)
    dlq_max_bytes_shown = _readable("dlq_max_bytes", is_duration=False, labels=LIMIT_LABELS)

    def get_urls(self) -> list[URLPattern]:
        tables = self.admin_site.admin_view(self.overview_tables)
        return [path("overview/", tables, name="django_mqlite_queue_overview"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the overview; run an action (pause or resume) on POST."""
        if request.method == "POST":
            return super().changelist_view(request, extra_context)
        context = {**self._overview(request), **(extra_context or {})}
        return self.render(request, "overview", title=_("Queue overview"), **context)

    def overview_tables(self, request: HttpRequest) -> HttpResponse:
        """Return only the tables of the overview, which its page fetches every few seconds."""
        context = self._overview(request)
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_mqlite/overview_tables.html", context)

    def _overview(self, request: HttpRequest) -> dict[str, Any]:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return {
            **overview(),
            "can_pause": self.has_pause_permission(request),
            "can_view_messages": self.holds(request, "view_message"),
        }

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "pause_queue")

    @admin.action(description=_("Pause selected queues"), permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        count = self._set_paused(request, queryset, paused=True)
        if count is not None:
            text = ngettext("%(count)d queue paused.", "%(count)d queues paused.", count)
            self.message_user(request, text % {"count": count}, messages.SUCCESS)

    @admin.action(description=_("Resume selected queues"), permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        count = self._set_paused(request, queryset, paused=False)
        if count is not None:
            text = ngettext("%(count)d queue resumed.", "%(count)d queues resumed.", count)
            self.message_user(request, text % {"count": count}, messages.SUCCESS)

    def _set_paused(
        self, request: HttpRequest, queues: QuerySet[Queue], *, paused: bool
    ) -> int | None:
        """Return the number of changed queues, or None after a database error."""
        try:
            with write_transaction(Queue.objects.database):
                changed = [queue for queue in queues if Queue.objects.set_paused(queue, paused)]
                log(request, changed, CHANGE, "Paused." if paused else "Resumed.")
        except OperationalError as error:
            self.message_user(request, nothing_changed(error), messages.ERROR)
            return None
        return len(changed)

    # A queue's page

    def has_change_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        if not (self.has_view_permission(request) and self.holds(request, "change_queue")):
            return False
        return obj is None or obj.name not in get_settings().queues

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[Any, Any]]:
        can_change = self.has_change_permission(request, obj)
        return [
            (None, {"fields": ("name", "kind", "paused", "declared")}),
            (_("Delivery"), {"fields": self._names(DELIVERY, editable=can_change)}),
            (_("Retention"), {"fields": self._names(RETENTION, editable=can_change)}),
            (_("History"), {"fields": ("created_at", "updated_at")}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        names = [
            name for _, options in self.get_fieldsets(request, obj) for name in options["fields"]
        ]
        is_editable = self.has_change_permission(request, obj)
        return [name for name in names if not (is_editable and name in DELIVERY + RETENTION)]

    def _names(self, columns: tuple[str, ...], *, editable: bool) -> list[str]:
        """Return the names of the form fields, or of their read-only displays."""
        if editable:
            return list(columns)
        return [f"{name}_shown" if hasattr(self, f"{name}_shown") else name for name in columns]

    @admin.display(description=_("rate"))
    def rate_shown(self, queue: Queue) -> str:
        return str(queue.rate or _("unlimited"))

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: bool) -> None:
        config = {field.name: getattr(obj, field.name) for field in fields(QueueConfig)}
        Queue.objects.declare(obj.name, QueueConfig(**config))

    reported_errors = (ImproperlyConfigured, OperationalError)

    @admin.display(description=_("configured by"))
    def declared(self, queue: Queue) -> str:
        if queue.name in get_settings().queues:
            return gettext("MQLITE['QUEUES'] in the settings: change it there and run migrate")
        return gettext("Queue.objects.create_queue() or this page")
