"""The buttons on a message's page: asked about where something could be lost, done, logged."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseRedirect
from django.utils.translation import gettext

from ..exceptions import MqliteError
from ..models import Message
from ..transactions import write_transaction
from .asking import Asked, ask
from .log import log
from .message_verbs import VERBS, MessageVerb
from .read_only import ReadOnlyAdmin
from .words import STATES


def offered(
    model_admin: ReadOnlyAdmin, request: HttpRequest, message: Message
) -> list[MessageVerb]:
    """The verbs that make sense for the message as it is, and that this person may use."""
    return [
        verb
        for verb in VERBS
        if message.state == verb.state and model_admin.holds(request, verb.permission)
    ]


def act(model_admin: ReadOnlyAdmin, request: HttpRequest, id: int, name: str) -> HttpResponse:
    """What a button does: the page that asks, or the deed and the way back."""
    verb = next(each for each in VERBS if each.name == name)
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    if not (
        model_admin.has_view_permission(request) and model_admin.holds(request, verb.permission)
    ):
        raise PermissionDenied
    message = Message.objects.filter(pk=id).first()
    if message is None:
        text = gettext("There is no message #%(id)d any more.") % {"id": id}
        model_admin.message_user(request, text, messages.WARNING)
    elif message.state != verb.state:
        model_admin.message_user(request, _no_sense(verb, message), messages.ERROR)
    elif verb.question and request.POST.get("confirmed") != "yes":
        return _ask(model_admin, request, message, verb)
    else:
        _carry_out(model_admin, request, message, verb)
    return HttpResponseRedirect(_back(model_admin, id))


def _ask(
    model_admin: ReadOnlyAdmin, request: HttpRequest, message: Message, verb: MessageVerb
) -> HttpResponse:
    asked = Asked(
        question=verb.question,
        details=[f"{message}: {message.subject}" if message.subject else str(message)],
        button=verb.label,
        hidden=[("confirmed", "yes"), ("lease", request.POST.get("lease", ""))],
        back=_back(model_admin, message.pk),
        is_deletion=verb.is_deletion,
    )
    return ask(model_admin, request, asked, title=verb.label)


def _carry_out(
    model_admin: ReadOnlyAdmin, request: HttpRequest, message: Message, verb: MessageVerb
) -> None:
    """The deed and its log entry are one transaction."""
    try:
        with write_transaction(Message.objects.database):
            done = verb.act(message, request.POST.get("lease", ""))
            if done:
                log(request, [message], verb.log_flag, verb.log_text)
    except (OperationalError, MqliteError) as error:
        text = gettext("Nothing was changed: %(error)s") % {"error": error}
        model_admin.message_user(request, text, messages.ERROR)
    else:
        text, level = (verb.done, messages.SUCCESS) if done else (verb.refused, messages.ERROR)
        model_admin.message_user(request, text, level)


def _no_sense(verb: MessageVerb, message: Message) -> str:
    text = gettext(
        "“%(verb)s” is for messages in state “%(wanted)s”; #%(id)d is in state “%(state)s”."
    )
    return text % {
        "verb": verb.label,
        "wanted": STATES[verb.state],
        "id": message.pk,
        "state": STATES[message.state],  # type: ignore[index]
    }


def _back(model_admin: ReadOnlyAdmin, id: int) -> str:
    """To the message while this list has it, else to the list."""
    if model_admin.model.objects.filter(pk=id).exists():
        return model_admin.address("change", id)
    return model_admin.address("changelist")


def buttons(model_admin: ReadOnlyAdmin, request: HttpRequest, message: Message) -> dict[str, Any]:
    """What the page's template needs for them."""
    return {
        "buttons": [
            (verb, model_admin.address(verb.name, message.pk))
            for verb in offered(model_admin, request, message)
        ],
        "lease_seen": message.lease_fingerprint or "",
    }
