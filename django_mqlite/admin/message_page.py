"""What the lists and pages of messages and of dead letters share."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..exceptions import QueueNotFound
from ..formatting import length, time_of
from ..models import Message, Queue
from ..timing import epoch_ms
from ..types import MAX_INTEGER, Page, State
from . import message_actions, task_fields
from .failed_deliveries import failed_deliveries
from .message_verbs import VERBS
from .read_only import ReadOnlyAdmin
from .readable import printable, readable_body, readable_json, shortened
from .task_fields import TaskFields
from .words import STATES

NOTHING = "–"
GREATEST = "\U0010ffff"
"""No text with this beginning comes after it."""

FIELDSETS: list[tuple[Any, Any]] = [
    (None, {"fields": ["id", "queue", "shown_state", "subject", "priority", "group_id"]}),
    (_("Content"), {"fields": ["content_type", "body_shown", "properties_shown"]}),
    (
        _("Delivery"),
        {
            "fields": [
                "enqueued_at",
                "visible_at",
                "expires_at",
                "deliveries",
                "interruptions",
                "lease",
            ]
        },
    ),
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


class MessagePage(TaskFields, ReadOnlyAdmin):
    """A message by its sequence number, with everything known of it except its lock token."""

    fieldsets = FIELDSETS
    readonly_fields = [
        *(field for _name, options in FIELDSETS for field in options["fields"]),
        *task_fields.FIELDS,
    ]
    # Says that there is a search; what it looks at is in get_search_results().
    search_fields = ["id"]
    search_help_text = _(
        "Sequence number, message id, correlation id or the beginning of the subject"
    )
    always: Mapping[str, str] = {}
    """What every message of the list is."""
    change_form_template = "admin/django_mqlite/message.html"

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        own = [
            path(
                f"<int:id>/{verb.name}/",
                self.admin_site.admin_view(self.act),
                {"name": verb.name},
                name=f"{name}_{verb.name}",
            )
            for verb in VERBS
        ]
        body = self.admin_site.admin_view(self.body)
        return [*own, path("<int:id>/body/", body, name=f"{name}_body"), *super().get_urls()]

    def get_fieldsets(self, request: HttpRequest, obj: Message | None = None) -> Any:
        """A task is shown as one as well."""
        first, *rest = super().get_fieldsets(request, obj)
        if obj is None or task_fields.facts_of(obj) is None:
            return [first, *rest]
        return [first, task_fields.FIELDSET, *rest]

    def act(self, request: HttpRequest, id: int, name: str) -> HttpResponse:
        """One of the buttons on the page."""
        return message_actions.act(self, request, id, name)

    def body(self, request: HttpRequest, id: int) -> HttpResponse:
        """The whole body as a file, as bytes: nothing that a browser would run or render."""
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

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        message = options["obj"]
        context |= message_actions.buttons(self, request, message)
        context["explanation"] = message.explain()
        return super().render_change_form(request, context, *args, **options)

    def find(self, request: HttpRequest, queryset: QuerySet[Any], place: str | None) -> Page:
        """By index, as far as the filters are those that there are indexes for."""
        if request.GET.get("reason"):
            return super().find(request, queryset, place)
        wanted = {name: request.GET.get(name) or None for name in ("queue", "state", "group")}
        try:
            return Message.objects.find(
                **{**wanted, **self.always},
                text=(request.GET.get(SEARCH_VAR) or "").strip() or None,
                limit=self.list_per_page,
                after=place,
            )
        except QueueNotFound:
            return Page(ids=(), next=None)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """What find() finds, for the actions on all that match: each part by an index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        known = Q(message_id=term) | Q(correlation_id=term) | _is_id(term)
        return queryset.filter(known | Q(subject__gte=term, subject__lt=term + GREATEST)), False

    @admin.display(description=_("state"))
    def shown_state(self, message: Message) -> str:
        return str(STATES[State(message.state)])

    @admin.display(description=_("subject"), empty_value="–")
    def short_subject(self, message: Message) -> str | None:
        return shortened(message.subject)

    @admin.display(description=_("body"))
    def body_shown(self, message: Message) -> SafeString:
        """The body, the beginning of a long one, and the whole of it to download."""
        body = bytes(message.body)
        return format_html(
            '<div>{}<p><a href="{}" download>{}</a></p></div>',
            preformatted(readable_body(body, message.content_type)),
            self.address("body", message.pk),
            gettext("Download the body (%(size)s)") % {"size": filesizeformat(len(body))},
        )

    @admin.display(description=_("properties"))
    def properties_shown(self, message: Message) -> str:
        return preformatted(readable_json(message.properties)) if message.properties else NOTHING

    @admin.display(description=_("result"))
    def result_shown(self, message: Message) -> str:
        return NOTHING if message.result is None else preformatted(readable_json(message.result))

    @admin.display(description=_("deliveries"))
    def deliveries(self, message: Message) -> str:
        """How many of how many; the bound is the message's own, else its queue's."""
        bound = message.max_delivery_count or (
            Queue.objects.filter(name=message.queue)
            .values_list("max_delivery_count", flat=True)
            .first()
        )
        return gettext("%(count)s of %(bound)s") % {"count": message.delivery_count, "bound": bound}

    @admin.display(description=_("lease"))
    def lease(self, message: Message) -> str:
        if message.state != State.LOCKED:
            return NOTHING
        now = timing.now_ms()
        until = epoch_ms(message.locked_until) if message.locked_until else now
        since = epoch_ms(message.locked_at) if message.locked_at else now
        facts = {
            "worker": printable(message.locked_by or gettext("unnamed worker")),
            "until": time_of(until, now=now),
            "held": length(now - since),
        }
        if until > now:
            return gettext("%(worker)s, until %(until)s, held for %(held)s") % facts
        return gettext("%(worker)s, ran out at %(until)s and waits for the reaper") % facts

    @admin.display(description=_("failed deliveries"))
    def errors_shown(self, message: Message) -> str:
        return failed_deliveries(message.errors) if message.errors else NOTHING


def preformatted(text: str) -> SafeString:
    """The text as it is, escaped; a long line scrolls instead of widening the page."""
    return format_html('<pre class="mqlite-pre" tabindex="0">{}</pre>', text)


def _is_id(term: str) -> Q:
    is_number = term.isascii() and term.isdecimal() and len(term) <= len(str(MAX_INTEGER))
    return Q(pk=int(term)) if is_number and int(term) <= MAX_INTEGER else Q()
