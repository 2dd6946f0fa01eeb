"""Admin of messages: the list, and a message's page with its buttons."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path, register_converter
from django.urls.converters import IntConverter
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..exceptions import QueueNotFound, stored_failures
from ..formatting import format_duration, format_progress, format_time, state_label
from ..models import Message, Queue
from ..task_facts import NotATask, is_task, task_facts
from ..timing import epoch_ms
from ..types import MAX_INTEGER, Page, State
from .actions import ACTIONS, ACTIVATE, DISCARD, act_on_message, offered_actions
from .base import BaseAdmin, GroupFilter, QueueFilter, StateFilter
from .bulk_actions import act_on_many
from .formatting import (
    failed_deliveries,
    preformatted,
    printable,
    readable_body,
    readable_json,
    shortened,
)

EMPTY = "–"
LAST_CHARACTER = "\U0010ffff"

FIELDSETS: list[tuple[Any, Any]] = [
    (None, {"fields": ("id", "queue", "shown_state", "subject", "priority", "group_id")}),
    (_("Content"), {"fields": ("content_type", "shown_body", "shown_properties")}),
    (_("Delivery"), {"fields": (
        "enqueued_at", "visible_at", "expires_at", "deliveries", "interruptions",
        "uncounted_retries", "lease", "shown_progress",
    )}),
    (_("Outcome"), {"fields": (
        "finished_at", "dead_letter_reason", "dead_letter_description", "shown_result",
    )}),
    (_("Failed deliveries"), {"fields": ("shown_errors",)}),
    (_("References"), {"fields": ("message_id", "unique_key", "correlation_id", "reply_to")}),
]  # fmt: skip
TASK_FIELDSET: tuple[Any, Any] = (
    _("Task"),
    {"fields": ("task_call", "task_status", "task_attempts")},
)


class SequenceNumberConverter(IntConverter):
    """A sequence number, which can be negative if another program wrote it."""

    regex = "-?[0-9]+"


register_converter(SequenceNumberConverter, "mqlite_id")


class BaseMessageAdmin(BaseAdmin):
    """Base of the message and dead-letter admins; shows every field except the lock token."""

    fieldsets = FIELDSETS
    readonly_fields = [
        field for _name, options in [*FIELDSETS, TASK_FIELDSET] for field in options["fields"]
    ]
    # Enables the search; get_search_results() decides which columns are searched.
    search_fields = ["id"]
    search_help_text = _("Sequence number, message id, correlation id or beginning of the subject")
    fixed_filters: Mapping[str, str] = {}
    change_form_template = "admin/django_mqlite/message.html"
    change_list_template = "admin/django_mqlite/messages.html"

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        act, body = self.admin_site.admin_view(self.act), self.admin_site.admin_view(self.body)
        return [
            *(
                path(f"<mqlite_id:id>/{action}/", act, {"name": action}, name=f"{name}_{action}")
                for action in ACTIONS
            ),
            path("<mqlite_id:id>/body/", body, name=f"{name}_body"),
            *super().get_urls(),
        ]

    def act(self, request: HttpRequest, id: int, name: str) -> HttpResponse:
        """Run the action of a button."""
        return act_on_message(self, request, id, ACTIONS[name])

    def body(self, request: HttpRequest, id: int) -> HttpResponse:
        """Download the whole body as a file that browsers do not render."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        message = self.model.objects.filter(pk=id).only("body").first()
        if message is None:
            raise Http404
        return HttpResponse(
            bytes(message.body),
            content_type="application/octet-stream",
            headers={
                "Content-Disposition": f'attachment; filename="message-{id}"',
                "X-Content-Type-Options": "nosniff",
            },
        )

    def get_fieldsets(self, request: HttpRequest, obj: Message | None = None) -> Any:
        first, *others = super().get_fieldsets(request, obj)
        if obj is None or not _is_readable_task(obj):
            return [first, *others]
        return [first, TASK_FIELDSET, *others]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        message = options["obj"]
        context["actions"] = offered_actions(self, request, message)
        context["explanation"] = message.explain()
        return super().render_change_form(request, context, *args, **options)

    # The list

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with a button for each action on all matching messages."""
        allowed = self.get_actions(request)
        actions = [action for action in ACTIONS.values() if action.name in allowed]
        return super().changelist_view(
            request, {"actions_for_all": actions, **(extra_context or {})}
        )

    def find(self, request: HttpRequest, queryset: QuerySet[Any], position: str | None) -> Page:
        """Use Message.objects.find(), unless a filter is set that only dead letters have."""
        if request.GET.get("reason") or request.GET.get("error_class"):
            return super().find(request, queryset, position)
        filters = {name: request.GET.get(name) or None for name in ("queue", "state", "group")}
        try:
            return Message.objects.find(
                **{**filters, **self.fixed_filters},
                text=(request.GET.get(SEARCH_VAR) or "").strip() or None,
                limit=self.list_per_page,
                after=position,
            )
        except QueueNotFound:
            return Page(ids=(), next=None)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Apply the search of find(), for actions on all matching messages."""
        term = search_term.strip()
        if not term:
            return queryset, False
        matches = Q(message_id=term) | Q(correlation_id=term)
        matches |= Q(subject__gte=term, subject__lt=term + LAST_CHARACTER)
        if term.isascii() and term.isdecimal() and len(term) <= len(str(MAX_INTEGER)):
            matches |= Q(pk=int(term)) if int(term) <= MAX_INTEGER else Q()
        return queryset.filter(matches), False

    # Columns and fields

    @admin.display(description=_("state"))
    def shown_state(self, message: Message) -> str:
        return state_label(message.state)

    @admin.display(description=_("subject"), empty_value=EMPTY)
    def short_subject(self, message: Message) -> str | None:
        return shortened(message.subject)

    @admin.display(description=_("body"))
    def shown_body(self, message: Message) -> SafeString:
        body = bytes(message.body)
        return format_html(
            '<div>{}<p><a href="{}" download>{}</a></p></div>',
            preformatted(readable_body(body, message.content_type)),
            self.url("body", message.pk),
            gettext("Download the body (%(size)s)") % {"size": filesizeformat(len(body))},
        )

    @admin.display(description=_("properties"))
    def shown_properties(self, message: Message) -> str:
        return preformatted(readable_json(message.properties)) if message.properties else EMPTY

    @admin.display(description=_("result"))
    def shown_result(self, message: Message) -> str:
        return EMPTY if message.result is None else preformatted(readable_json(message.result))

    @admin.display(description=_("deliveries"))
    def deliveries(self, message: Message) -> str:
        """Return the delivery count and its limit, the message's own or its queue's."""
        limit = message.max_delivery_count or (
            Queue.objects.filter(name=message.queue)
            .values_list("max_delivery_count", flat=True)
            .first()
        )
        return gettext("%(count)s of %(limit)s") % {"count": message.delivery_count, "limit": limit}

    @admin.display(description=_("lease"))
    def lease(self, message: Message) -> str:
        if message.state != State.LOCKED:
            return EMPTY
        now = timing.now_ms()
        until = epoch_ms(message.locked_until) if message.locked_until else now
        since = epoch_ms(message.locked_at) if message.locked_at else now
        facts = {
            "worker": printable(message.locked_by or gettext("unnamed worker")),
            "until": format_time(until, now=now),
            "held": format_duration(now - since),
        }
        if until > now:
            return gettext("%(worker)s, until %(until)s, held for %(held)s") % facts
        return gettext("%(worker)s, expired at %(until)s, waiting for the reaper") % facts

    @admin.display(description=_("progress"), empty_value=EMPTY)
    def shown_progress(self, message: Message) -> str | None:
        text = format_progress(message.progress)
        return printable(text) if text else None

    @admin.display(description=_("failed deliveries"))
    def shown_errors(self, message: Message) -> str:
        return failed_deliveries(stored_failures(message.errors)) if message.errors else EMPTY

    @admin.display(description=_("call"))
    def task_call(self, message: Message) -> SafeString:
        """Return the task's path and its arguments, one per line."""
        task = task_facts(message)
        arguments = [readable_json(value) for value in task.args]
        arguments += [f"{name} = {readable_json(value)}" for name, value in task.kwargs.items()]
        lines = "".join(f"    {argument},\n" for argument in arguments)
        return preformatted(printable(f"{task.path}(\n{lines})" if lines else f"{task.path}()"))

    @admin.display(description=_("status"))
    def task_status(self, message: Message) -> str:
        return str(task_facts(message).status)

    @admin.display(description=_("attempts"))
    def task_attempts(self, message: Message) -> str:
        """Return the number of attempts and their workers."""
        workers = task_facts(message).worker_ids
        return printable(f"{len(workers)}: {', '.join(workers)}" if workers else "0")


def _is_readable_task(message: Message) -> bool:
    """Return True for a message whose content is a valid task."""
    try:
        return is_task(message) and task_facts(message) is not None
    except NotATask:
        return False


class MessageAdmin(BaseMessageAdmin):
    """All messages, newest first; the list of one queue or state is in delivery order."""

    list_display = (
        "id", "queue", "shown_state", "short_subject", "group_id", "delivery_count", "enqueued_at",
    )  # fmt: skip
    ordering = ("-id",)
    list_filter = (QueueFilter, StateFilter, GroupFilter)
    actions = ("activate", "discard")

    def get_list_display(self, request: HttpRequest) -> Any:
        """Add the progress to the list of locked messages."""
        columns = super().get_list_display(request)
        return (*columns, "shown_progress") if request.GET.get("state") == "locked" else columns

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Offer the actions that are possible in the state that the list is filtered by.

        `action_location` exists since Django 6.1.
        """
        state = request.GET.get("state")
        location = () if action_location is None else (action_location,)
        return {
            name: action
            for name, action in super().get_actions(request, *location).items()
            if not state or name not in ACTIONS or state in ACTIONS[name].states
        }

    def has_activate_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, ACTIVATE.permission)

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, DISCARD.permission)

    @admin.action(description=_("Activate selected messages"), permissions=["activate"])
    def activate(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        return act_on_many(self, request, queryset, ACTIVATE)

    @admin.action(description=_("Discard selected messages"), permissions=["discard"])
    def discard(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        return act_on_many(self, request, queryset, DISCARD)

    def get_page_queryset(self) -> Any:
        return Message.objects.only(
            "id", "queue", "state", "subject", "group_id", "delivery_count", "enqueued_at",
            "progress",
        )  # fmt: skip
