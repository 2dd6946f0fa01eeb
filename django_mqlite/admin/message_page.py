"""The page of a message: its rows, its links, and the answer for a message that is gone."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..conf import get_settings
from ..exceptions import stored_failures
from ..formatting import format_duration, format_progress, format_time, state_label
from ..models import Message, Queue
from ..task_facts import NotATask, is_task, task_facts
from ..timing import epoch_ms
from ..types import State, clamped
from .actions import offered_actions
from .base import BaseAdmin
from .content import ContentView, content_of
from .formatting import (
    failed_deliveries,
    preformatted,
    printable,
    readable_body,
    readable_json,
    time_with_age,
    with_links,
)
from .forms import may_edit

TASK = (_("Task"), ("task_call", "task_status", "task_attempts"), "")
FACTS = "mqlite-facts"
"""The class of sections with short values, which are shown in two columns if there is space."""

SECTIONS = (
    (_("Failed deliveries"), ("shown_errors",), ""),
    (_("Content"), ("shown_body", "shown_properties", "shown_result", "content_type"), ""),
    (_("Message"), (
        "shown_queue", "shown_state", "subject", "shown_group", "priority", "message_id",
        "unique_key", "shown_correlation_id", "reply_to",
    ), FACTS),
    (_("Delivery"), (
        "shown_enqueued_at", "shown_visible_at", "shown_expires_at", "deliveries", "interruptions",
        "uncounted_retries", "lease", "shown_progress",
    ), FACTS),
    (_("Outcome"), (
        "shown_finished_at", "dead_letter_reason", "shown_description", "shown_kept_until",
    ), FACTS),
)  # fmt: skip
"""The sections of the page with their rows and CSS class; a row without a value is not shown."""

ALWAYS_SHOWN = {"shown_body", "deliveries", *TASK[1]}
COLUMNS = {
    "shown_group": "group_id",
    "shown_description": "dead_letter_description",
    "lease": "lock_token",
}
"""The column of a row that is not called as its column with the prefix `shown_`."""


def _has_value(message: Message, field: str) -> bool:
    if field in ALWAYS_SHOWN:
        return True
    value = getattr(message, COLUMNS.get(field, field.removeprefix("shown_")))
    return value is not None if field == "shown_result" else bool(value)


def _time_row(name: str) -> Any:
    @admin.display(description=Message._meta.get_field(name).verbose_name)  # type: ignore[union-attr]
    def shown_time(self: Any, message: Message) -> str:
        return time_with_age(getattr(message, name))

    return shown_time


class MessagePage(BaseAdmin):
    """The page of one message; shows every field that has a value, except the lock token."""

    change_form_template = "admin/django_mqlite/message.html"
    readonly_fields = [field for _name, fields, _class in (*SECTIONS, TASK) for field in fields]

    def content_view(self, request: HttpRequest, obj: Any = None) -> ContentView:
        """Return what the user may see of bodies, results and the texts of errors."""
        return ContentView(
            permitted=self.has_view_body_permission(request, obj), format=get_settings().admin_body
        )

    def has_view_body_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "view_body")

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        message = getattr(request, "mqlite_message", None)  # read by change_view()
        if message is None:
            message = super().get_object(request, object_id, from_field)
        if message is not None:
            message.content_view = self.content_view(request, message)
        return message

    def get_fieldsets(self, request: HttpRequest, obj: Message | None = None) -> Any:
        """Return the sections with the rows that have a value."""
        first, *others = SECTIONS
        is_readable_task = obj is not None and _is_readable_task(obj)
        sections = [first, TASK, *others] if is_readable_task else [first, *others]
        fieldsets = []
        for name, fields, css_class in sections:
            shown = [field for field in fields if obj is None or _has_value(obj, field)]
            if shown:
                fieldsets.append((name, {"fields": shown, "classes": [css_class]}))
        return fieldsets

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the message, or what became of it if it is gone."""
        number = sequence_number(object_id)
        if number is not None and self.has_view_permission(request):
            message = self.get_object(request, object_id)
            if message is None:
                return self.render_gone(request, number)
            request.mqlite_message = message  # type: ignore[attr-defined]
        return super().change_view(request, object_id, form_url, extra_context)

    def render_gone(self, request: HttpRequest, number: int) -> HttpResponse:
        """Return the page that explains why the list does not have a message of this number."""
        return self.render(
            request,
            "gone",
            title=gettext("Message #%(id)d") % {"id": number},
            number=number,
            text=self.absence_of(request, number),
            status=404,
        )

    def absence_of(self, request: HttpRequest, number: int) -> str:
        """Return what became of a message that the user cannot see, as a clause."""
        if Message.objects.filter(pk=clamped(number)).exists():
            return gettext("is not among the messages that you may view")
        return Message.objects.explain(number).text

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        message = options["obj"]
        explanation = Message.objects.explain(
            message.pk, quote_errors=content_of(message).is_unmasked
        )
        named = [explanation.facts.get(fact) for fact in ("head", "longest")]
        context["explanation"] = with_links(
            explanation.text, list(filter(None, named)), lambda id: self.url("change", id)
        )
        context["actions"] = offered_actions(self, request, message)
        if may_edit(self, request, message):
            context["edit_url"] = self.url("edit", message.pk)
        return super().render_change_form(request, context, *args, **options)

    def body(self, request: HttpRequest, id: int) -> HttpResponse:
        """Download the body as a file that browsers do not render, masked as on the page."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        message = self.get_object(request, str(id))
        if message is None:
            raise Http404
        if not (
            self.has_view_permission(request, message)
            and self.has_view_body_permission(request, message)
        ):
            raise PermissionDenied
        return HttpResponse(
            _downloaded(message),
            content_type="application/octet-stream",
            headers={
                "Content-Disposition": f'attachment; filename="message-{id}"',
                "X-Content-Type-Options": "nosniff",
            },
        )

    # Rows

    def linked(self, text: str | None, **filters: str) -> str:
        """Return the text as a link to the list of messages with these filters."""
        url = f"{self.url('changelist')}?{urlencode(filters)}"
        return format_html('<a href="{}">{}</a>', url, printable(text or ""))

    @admin.display(description=_("queue"))
    def shown_queue(self, message: Message) -> str:
        return self.linked(message.queue, queue=message.queue)

    @admin.display(description=_("state"))
    def shown_state(self, message: Message) -> str:
        return state_label(message.state)

    @admin.display(description=_("group id"))
    def shown_group(self, message: Message) -> str:
        return self.linked(message.group_id, queue=message.queue, group=message.group_id or "")

    @admin.display(description=_("correlation id"))
    def shown_correlation_id(self, message: Message) -> str:
        return self.linked(message.correlation_id, q=message.correlation_id or "")

    @admin.display(description=_("body"))
    def shown_body(self, message: Message) -> str:
        body = bytes(message.body)
        text = content_of(message).shown(readable_body(body, message.content_type), message, "body")
        if text is None:
            return gettext("Hidden: you do not have the permission “view_body”.")
        return format_html(
            '<div>{}<p><a href="{}" download>{}</a></p></div>',
            preformatted(text),
            self.url("body", message.pk),
            gettext("Download the body (%(size)s)") % {"size": filesizeformat(len(body))},
        )

    @admin.display(description=_("properties"))
    def shown_properties(self, message: Message) -> str:
        return preformatted(readable_json(message.properties))

    @admin.display(description=_("result"))
    def shown_result(self, message: Message) -> str:
        text = content_of(message).shown(readable_json(message.result), message, "result")
        return gettext("hidden") if text is None else preformatted(text)

    shown_enqueued_at = _time_row("enqueued_at")
    shown_visible_at = _time_row("visible_at")
    shown_expires_at = _time_row("expires_at")
    shown_finished_at = _time_row("finished_at")
    shown_kept_until = _time_row("kept_until")

    @admin.display(description=_("dead-letter description"))
    def shown_description(self, message: Message) -> str:
        text = content_of(message).shown(message.dead_letter_description or "", message, "error")
        return gettext("hidden") if text is None else printable(text)

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
        now = timing.now_ms()
        until = epoch_ms(message.locked_until) if message.locked_until else now
        since = epoch_ms(message.locked_at) if message.locked_at else now
        facts = {"until": format_time(until, now=now), "held": format_duration(now - since)}
        text = (
            gettext("until %(until)s, held for %(held)s")
            if until > now
            else gettext("expired at %(until)s, waiting for the reaper")
        )
        return format_html("{}, {}", self.linked_worker(message), text % facts)

    def linked_worker(self, message: Message) -> str:
        """Return the worker as a link to the messages that it has under a lease."""
        if not message.locked_by:
            return gettext("unnamed worker")
        return self.linked(message.locked_by, state=State.LOCKED, worker=message.locked_by)

    @admin.display(description=_("progress"))
    def shown_progress(self, message: Message) -> str | None:
        text = format_progress(message.progress)
        return printable(text) if text else None

    @admin.display(description=_("failed deliveries"))
    def shown_errors(self, message: Message) -> str:
        return failed_deliveries(
            stored_failures(message.errors),
            lambda text: content_of(message).shown(text, message, "error"),
        )

    @admin.display(description=_("call"))
    def task_call(self, message: Message) -> str:
        """Return the task's path and its arguments, one per line."""
        task = task_facts(message)
        arguments = [readable_json(value) for value in task.args]
        arguments += [f"{name} = {readable_json(value)}" for name, value in task.kwargs.items()]
        lines = "".join(f"    {argument},\n" for argument in arguments)
        call = f"{task.path}(\n{lines})" if lines else f"{task.path}()"
        text = content_of(message).shown(call, message, "body")
        return preformatted(f"{task.path}(…)" if text is None else text)

    @admin.display(description=_("status"))
    def task_status(self, message: Message) -> str:
        return str(task_facts(message).status)

    @admin.display(description=_("attempts"))
    def task_attempts(self, message: Message) -> str:
        """Return the number of attempts and their workers."""
        workers = task_facts(message).worker_ids
        return printable(f"{len(workers)}: {', '.join(workers)}" if workers else "0")


def sequence_number(object_id: str) -> int | None:
    """Return the number that the text of a URL or of a search is, or None."""
    digits = object_id.removeprefix("-")
    return int(object_id) if digits.isascii() and digits.isdecimal() and len(digits) < 40 else None


def _downloaded(message: Message) -> bytes:
    """Return the bytes of the body, or the text of a masked one."""
    content, body = content_of(message), bytes(message.body)
    if content.is_unmasked:
        return body
    text = content.shown(readable_body(body, message.content_type), message, "body") or ""
    return text.encode(errors="backslashreplace")


def _is_readable_task(message: Message) -> bool:
    """Return True for a message whose content is a valid task."""
    try:
        return is_task(message) and task_facts(message) is not None
    except NotATask:
        return False
