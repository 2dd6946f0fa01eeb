"""Admin of queues: the overview, pausing and resuming, and the form of a queue's options."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.gzip import gzip_page

from ..conf import get_settings
from ..exceptions import MqliteError
from ..limits import read_rate
from ..models import Message, Queue
from ..timing import milliseconds
from ..transactions import write_transaction
from ..types import MAX_INTEGER, QueueConfig
from .base import BaseAdmin, log, nothing_changed
from .overview import (
    Filter,
    Situation,
    Urls,
    day_chart,
    hour_chart,
    overview_context,
    queue_row,
    time_rows,
)

DELIVERY = (
    "ordering_mode", "lock_duration_ms", "max_delivery_count", "backoff_base_ms", "backoff_max_ms",
    "default_ttl_ms", "dead_letter_on_expire", "dedup_window_ms", "max_in_flight", "rate",
)  # fmt: skip
RETENTION = ("retain_completed_ms", "dlq_max_age_ms", "dlq_max_count", "dlq_max_bytes")


class LimitField(forms.IntegerField):
    """A limit on dead letters: empty uses the setting (0 in the row), -1 means unlimited."""

    def __init__(self, **options: Any) -> None:
        options |= {"required": False, "min_value": None, "max_value": None}
        super().__init__(**options)
        self.help_text = _("Leave empty to use the setting; -1 means unlimited.")

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        if value <= 0:
            return -1 if value else None
        return self.shown(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)

    def clean(self, value: Any) -> int:
        """Return the value for the row; its bounds are those of the settings."""
        number = super().clean(value)
        if number in (None, -1):
            return 0 if number is None else -1
        return self.checked(number)

    def shown(self, value: int) -> Any:
        return value

    def checked(self, number: Any) -> int:
        if not 0 < number <= MAX_INTEGER:
            raise ValidationError(_("Enter a number above 0, -1 for unlimited, or leave it empty."))
        return int(number)


class AgeLimitField(LimitField):
    """A limit in seconds, stored in milliseconds."""

    def to_python(self, value: Any) -> Any:
        return forms.FloatField(required=False).clean(value)

    def shown(self, value: int) -> Any:
        return value / 1000 if value % 1000 else value // 1000

    def checked(self, number: Any) -> int:
        try:
            return milliseconds(number, str(self.label), minimum=1)
        except ValueError as error:
            raise ValidationError(str(error)) from error


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


def _limit(column: str, *, is_duration: bool = True) -> Callable[..., str]:
    """Return an admin display of a limit on dead letters, which may be the default."""
    field: Any = Queue._meta.get_field(column)

    def shown(value: int) -> str:
        if value == -1:
            return gettext("unbounded")
        return f"{value / 1000:,.15g} s" if is_duration else f"{value:,}"

    @admin.display(description=field.verbose_name)
    def display(model_admin: Any, queue: Queue) -> str:
        if value := getattr(queue, column):
            return shown(value)
        default = shown(getattr(get_settings(), column))
        return gettext("the default (%(default)s)") % {"default": default}

    return display


class QueueAdmin(BaseAdmin):
    """The overview instead of a list, and a page for each queue.

    Queues declared in the settings cannot be edited: the next migrate would undo the change.
    """

    form = QueueForm
    ordering = ("name",)

    lock_duration_ms_shown = _readable("lock_duration_ms")
    backoff_base_ms_shown = _readable("backoff_base_ms")
    backoff_max_ms_shown = _readable("backoff_max_ms")
    default_ttl_ms_shown = _readable("default_ttl_ms", labels={0: _("unlimited")})
    dedup_window_ms_shown = _readable("dedup_window_ms", labels={0: _("off")})
    retain_completed_ms_shown = _readable(
        "retain_completed_ms", labels={0: _("deleted immediately")}
    )
    max_in_flight_shown = _readable("max_in_flight", is_duration=False, labels={0: _("unlimited")})
    dlq_max_age_ms_shown = _limit("dlq_max_age_ms")
    dlq_max_count_shown = _limit("dlq_max_count", is_duration=False)
    dlq_max_bytes_shown = _limit("dlq_max_bytes", is_duration=False)

    def get_urls(self) -> list[URLPattern]:
        # Compressed, because the page of a project with many queues fetches it every few seconds.
        tables = self.admin_site.admin_view(gzip_page(self.overview_tables))
        return [path("overview/", tables, name="django_mqlite_queue_overview"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the overview; pause or resume a queue on POST."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            self._pause_or_resume(request)
            return HttpResponseRedirect(request.get_full_path())
        context = {**self._overview(request), **(extra_context or {})}
        title = _("Queue overview")
        return self.render(request, "overview", title=title, is_list=True, **context)

    def overview_tables(self, request: HttpRequest) -> HttpResponse:
        """Return only the tables of the overview, which its page fetches every few seconds."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = self._overview(request)
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_mqlite/overview_tables.html", context)

    def _overview(self, request: HttpRequest) -> dict[str, Any]:
        chosen = Filter.from_query(request.GET)
        queues = list(self.get_queryset(request))
        visible = [queue for queue in queues if self.has_view_permission(request, queue)]
        is_restricted = self.is_restricted(request) or len(visible) < len(queues)
        situation = Situation.read({queue.name for queue in visible}, restricted=is_restricted)
        return {
            **overview_context(situation, self._urls(request), chosen),
            "filter": chosen,
            "query": request.GET.urlencode(),
            "can_pause": self.has_pause_permission(request),
            "pausable": {
                queue.name for queue in visible if self.has_pause_permission(request, queue)
            },
        }

    def _urls(self, request: HttpRequest) -> Urls:
        view = "admin:django_mqlite_message_changelist"
        can_view = self.holds(request, "view_message") and self.admin_site.is_registered(Message)
        return Urls(
            messages=reverse(view, current_app=self.admin_site.name) if can_view else "",
            queue=self.url("change", "QUEUE"),
        )

    def has_pause_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        """Return whether the user may pause and resume queues, or this queue."""
        return self.has_view_permission(request, obj) and self.holds(request, "pause_queue")

    def _pause_or_resume(self, request: HttpRequest) -> None:
        action = "pause" if "pause" in request.POST else "resume"
        name, paused = request.POST.get(action, ""), action == "pause"
        queue = self.get_object(request, name)
        if not self.has_pause_permission(request, queue):
            raise PermissionDenied
        if queue is None:
            text = gettext("Queue %(name)s no longer exists.") % {"name": name}
            self.message_user(request, text, messages.WARNING)
            return
        try:
            with write_transaction(Queue.objects.database):
                changed = Queue.objects.set_paused(queue, paused)
                if changed:
                    log(request, [queue], CHANGE, "Paused." if paused else "Resumed.")
        except (OperationalError, MqliteError) as error:
            self.message_user(request, nothing_changed(error), messages.ERROR)
            return
        texts = {
            (True, True): gettext("Queue %(name)s paused."),
            (True, False): gettext("Queue %(name)s was already paused."),
            (False, True): gettext("Queue %(name)s resumed."),
            (False, False): gettext("Queue %(name)s was not paused."),
        }
        level = messages.SUCCESS if changed else messages.WARNING
        self.message_user(request, texts[paused, changed] % {"name": queue.name}, level)

    # A queue's page

    change_form_template = "admin/django_mqlite/queue.html"

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        context |= self._facts_of(request, options["obj"])
        return super().render_change_form(request, context, *args, **options)

    def _facts_of(self, request: HttpRequest, queue: Queue) -> dict[str, Any]:
        """Return the queue's figures and its chart, of the last hour or of the last day."""
        situation = Situation.read({queue.name}, restricted=False)
        if not situation.overviews:  # the queue has just been deleted
            return {}
        (overview,) = situation.overviews
        is_day = request.GET.get("chart") == "day"
        return {
            "row": queue_row(overview, situation, self._urls(request)),
            "times": time_rows(overview),
            "is_day": is_day,
            "chart": day_chart(overview) if is_day else hour_chart(overview),
            "can_pause": self.has_pause_permission(request, queue),
        }

    def has_change_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        if not (self.has_view_permission(request, obj) and self.holds(request, "change_queue")):
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

    reported_errors = (ImproperlyConfigured, MqliteError, OperationalError)

    def field_of(self, error: Exception) -> str | None:
        # The form has validated the options, except that messages may need the ordering mode.
        return "ordering_mode" if isinstance(error, ImproperlyConfigured) else None

    @admin.display(description=_("configured by"))
    def declared(self, queue: Queue) -> str:
        if queue.name in get_settings().queues:
            return gettext("MQLITE['QUEUES'] in the settings: change it there and run migrate")
        return gettext("Queue.objects.create_queue() or this page")
