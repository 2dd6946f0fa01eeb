"""Forms with a body: redrive a dead letter with an edited one, and enqueue a message."""

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..exceptions import MqliteError
from ..message import is_json, is_text
from ..models import DeadLetter, Message, Queue, Subscription
from ..transactions import write_transaction
from ..types import State
from .base import BaseAdmin, log
from .content import content_of

REFUSALS = (OperationalError, MqliteError, TypeError, ValueError)
"""What a verb raises for values of the form; the user can change them and try again."""


class BodyForm(forms.Form):
    """A body that is typed as JSON or as text."""

    FORMATS = (("json", "JSON"), ("text", _("Text")))

    format = forms.ChoiceField(label=_("Format"), choices=FORMATS, widget=forms.RadioSelect)
    body = forms.CharField(
        label=_("Body"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 16, "class": "mqlite-body", "spellcheck": "false"}),
    )

    def clean(self) -> dict[str, Any]:
        """Add the `data` that the body means."""
        cleaned = super().clean() or {}
        # A browser sends the lines of a text with carriage returns.
        text = cleaned.get("body", "").replace("\r\n", "\n")
        if cleaned.get("format") == "text":
            return {**cleaned, "data": text}
        try:
            return {**cleaned, "data": json.loads(text)}
        except (ValueError, RecursionError) as error:
            text = gettext("This is not valid JSON: %(error)s") % {"error": error}
            self.add_error("body", text)
        return cleaned


def initial_body(message: Message) -> dict[str, str] | None:
    """Return the initial values of a form to edit the body, or None if it is not text."""
    try:
        if is_json(message.content_type):
            text = json.dumps(message.data, ensure_ascii=False, indent=2)
            return {"format": "json", "body": text}
        if is_text(message.content_type):
            return {"format": "text", "body": message.data}
    except (ValueError, RecursionError):
        pass
    return None


# Redrive a dead letter with an edited body


def may_edit(model_admin: Any, request: HttpRequest, message: Message) -> bool:
    """Return whether the user may redrive this dead letter with an edited body.

    Whoever edits a body sees it, so it must neither be hidden nor masked.
    """
    return (
        message.state == State.DEAD_LETTERED
        and model_admin.has_view_permission(request, message)
        and model_admin.holds(request, "redrive_edited_message")
        and content_of(message).is_unmasked
        and initial_body(message) is not None
    )


def redrive_edited(model_admin: Any, request: HttpRequest, id: int) -> HttpResponse:
    """Show the body of a dead letter in a form, or redrive the letter with the edited body."""
    if not (
        model_admin.has_view_permission(request)
        and model_admin.holds(request, "redrive_edited_message")
    ):
        raise PermissionDenied
    letter = model_admin.get_object(request, str(id))
    if letter is None or letter.state != State.DEAD_LETTERED:
        text = gettext("There is no %(kind)s #%(id)d any more.")
        text %= {"kind": DeadLetter._meta.verbose_name, "id": id}
        model_admin.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(model_admin.url("changelist"))
    if not may_edit(model_admin, request, letter):
        raise PermissionDenied
    form = BodyForm(request.POST or None, initial=initial_body(letter))
    if request.method == "POST" and form.is_valid():
        try:
            with write_transaction(Message.objects.database):
                copy = DeadLetter.objects.redrive_with(id, form.cleaned_data["data"])
                if copy is not None:
                    text = f"Redriven with an edited body as #{copy.pk}."
                    log(request, [Message(pk=id, queue=letter.queue)], CHANGE, text)
        except REFUSALS as error:
            form.add_error(None, ValidationError(str(error)))
        else:
            return _after_redrive(model_admin, request, letter, copy)
    return form_page(
        model_admin,
        request,
        form,
        title=gettext("Redrive #%(id)d with an edited body") % {"id": id},
        note=_(
            "The message gets a new number and is placed at the end of its group. The dead letter "
            "is deleted."
        ),
        button=_("Redrive"),
        back=model_admin.url("change", id),
    )


def _after_redrive(
    model_admin: BaseAdmin, request: HttpRequest, letter: Message, copy: Message | None
) -> HttpResponse:
    if copy is None:
        text = gettext("There is no %(kind)s #%(id)d any more.")
        text %= {"kind": DeadLetter._meta.verbose_name, "id": letter.pk}
        model_admin.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(model_admin.url("changelist"))
    text = gettext("#%(old)d was redriven with an edited body as %(message)s.")
    text %= {"old": letter.pk, "message": copy}
    model_admin.message_user(request, text, messages.SUCCESS)
    return HttpResponseRedirect(_page_or_list(model_admin, request, copy.pk))


# Enqueue a message


class EnqueueForm(BodyForm):
    """A new message. A topic publishes it to its subscriptions."""

    OPTIONS = (
        "delay", "ttl", "priority", "group_id", "subject", "message_id", "unique_key",
        "correlation_id", "reply_to", "properties",
    )  # fmt: skip

    target = forms.ChoiceField(label=_("Queue or topic"))
    subject = forms.CharField(label=_("Subject"), required=False)
    group_id = forms.CharField(label=_("Group id"), required=False)
    priority = forms.IntegerField(label=_("Priority"), required=False)
    delay = forms.FloatField(label=_("Delay in seconds"), required=False, min_value=0)
    ttl = forms.FloatField(label=_("Time to live in seconds"), required=False)
    properties = forms.JSONField(
        label=_("Properties"),
        required=False,
        initial=dict,
        help_text=_('A JSON object whose values are texts, such as {"tenant": "acme"}.'),
    )
    message_id = forms.CharField(label=_("Message id"), required=False)
    unique_key = forms.CharField(label=_("Unique key"), required=False)
    correlation_id = forms.CharField(label=_("Correlation id"), required=False)
    reply_to = forms.CharField(label=_("Reply to"), required=False)

    field_order = ("target", "format", "body")

    def __init__(self, *args: Any, queues: list[str], topics: list[str], **options: Any) -> None:
        super().__init__(*args, **options)
        choices = [
            (_("Queues"), [(f"queue:{name}", name) for name in queues]),
            (_("Topics"), [(f"topic:{name}", name) for name in topics]),
        ]
        target: Any = self.fields["target"]
        target.choices = [(label, names) for label, names in choices if names]

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of enqueue() that were filled in."""
        values = {name: self.cleaned_data.get(name) for name in self.OPTIONS}
        return {name: value for name, value in values.items() if value not in (None, "", {})}


def enqueue(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Show the form of a new message, or enqueue or publish it."""
    if not may_enqueue(model_admin, request):
        raise PermissionDenied
    initial = {"format": "json", "target": f"queue:{request.GET.get('queue', '')}"}
    form = EnqueueForm(
        request.POST or None,
        initial=initial,
        queues=_names(model_admin, request, Queue, "name"),
        topics=_names(model_admin, request, Subscription, "topic"),
    )
    if request.method == "POST" and form.is_valid():
        try:
            stored = _enqueued(request, form)
        except REFUSALS as error:
            form.add_error(None, ValidationError(str(error)))
        else:
            return _after_enqueue(model_admin, request, stored)
    return form_page(
        model_admin,
        request,
        form,
        title=gettext("Enqueue a message"),
        note=_("The message is stored at once. A worker handles it when it is due."),
        button=_("Enqueue"),
        back=model_admin.url("changelist"),
    )


def _names(model_admin: Any, request: HttpRequest, model: Any, column: str) -> list[str]:
    """Return the names of the rows that the project's admin of this model shows to the user."""
    site = model_admin.admin_site
    rows = (
        site.get_model_admin(model).get_queryset(request)
        if site.is_registered(model)
        else model.objects.all()
    )
    return sorted(set(rows.values_list(column, flat=True)))


def may_enqueue(model_admin: BaseAdmin, request: HttpRequest) -> bool:
    return model_admin.has_view_permission(request) and model_admin.holds(
        request, "enqueue_message"
    )


def _enqueued(request: HttpRequest, form: EnqueueForm) -> list[Message]:
    """Enqueue or publish the message, and log each new message."""
    kind, _colon, name = form.cleaned_data["target"].partition(":")
    options, data = dict(form.options), form.cleaned_data["data"]
    with write_transaction(Message.objects.database):
        stored = (
            Message.objects.publish(name, data, **options)
            if kind == "topic"
            else [Message.objects.enqueue(name, data, **options)]
        )
        log(request, [m for m in stored if not m.duplicate], ADDITION, "Enqueued.")
    return stored


def _after_enqueue(
    model_admin: BaseAdmin, request: HttpRequest, stored: list[Message]
) -> HttpResponse:
    for message in stored[:20]:
        text = (
            gettext("Not enqueued: the queue already has this message as %(message)s.")
            if message.duplicate
            else gettext("Enqueued %(message)s.")
        )
        level = messages.WARNING if message.duplicate else messages.SUCCESS
        model_admin.message_user(request, text % {"message": message}, level)
    if not stored:
        text = gettext("Nothing was enqueued: the message matches no subscription of the topic.")
        model_admin.message_user(request, text, messages.WARNING)
    if len(stored) == 1:
        return HttpResponseRedirect(_page_or_list(model_admin, request, stored[0].pk))
    return HttpResponseRedirect(model_admin.url("changelist"))


def _page_or_list(model_admin: BaseAdmin, request: HttpRequest, id: int) -> str:
    """Return the URL of the message's page if the user may view it, or of the list."""
    message = model_admin.get_object(request, str(id))
    if message is not None and model_admin.has_view_permission(request, message):
        return model_admin.url("change", id)
    return model_admin.url("changelist")


def form_page(
    model_admin: BaseAdmin, request: HttpRequest, form: forms.Form, **context: Any
) -> HttpResponse:
    """Return the page of a form; `note` stands above it and `button` labels its button."""
    return model_admin.render(request, "form", form=form, **context)
