"""A verb for a selection of dead letters: asked about, carried out, logged."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION
from django.db import OperationalError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from ..models import DeadLetter, Message
from ..transactions import write_transaction
from ..types import State
from .log import log

if TYPE_CHECKING:
    from .read_only import ReadOnlyAdmin

MAX_SELECTION = 1_000
"""More would hold the write lock, and everybody who enqueues, for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkVerb:
    """What is asked, done, said and logged."""

    action: str
    title: Any
    question: Any
    button: Any
    act: Callable[[Sequence[int]], int]
    done: Any
    log_flag: int
    log_text: str
    is_deletion: bool = False


REDRIVE = BulkVerb(
    action="redrive",
    title=_("Redrive dead letters"),
    question=ngettext_lazy(
        "Put %(count)d dead letter back to work? Its deliveries are counted from 0 again.",
        "Put %(count)d dead letters back to work? Their deliveries are counted from 0 again.",
        "count",
    ),
    button=_("Redrive"),
    act=DeadLetter.objects.redrive,
    done=ngettext_lazy(
        "%(count)d dead letter is back at work.",
        "%(count)d dead letters are back at work.",
        "count",
    ),
    log_flag=CHANGE,
    log_text="Redriven.",
)

PURGE = BulkVerb(
    action="purge",
    title=_("Purge dead letters"),
    question=ngettext_lazy(
        "Delete %(count)d dead letter for good? It cannot be brought back.",
        "Delete %(count)d dead letters for good? They cannot be brought back.",
        "count",
    ),
    button=_("Purge"),
    act=DeadLetter.objects.purge,
    done=ngettext_lazy(
        "%(count)d dead letter is gone for good.",
        "%(count)d dead letters are gone for good.",
        "count",
    ),
    log_flag=DELETION,
    log_text="Purged.",
    is_deletion=True,
)


def carry_out_or_ask(
    model_admin: "ReadOnlyAdmin", request: HttpRequest, selection: QuerySet[Any], verb: BulkVerb
) -> TemplateResponse | None:
    """The confirmation page, or, once confirmed, the deed and None for "back to the list"."""
    letters = list(selection.only("pk", "queue").order_by("pk")[: MAX_SELECTION + 1])
    if not letters:
        text = gettext("None of the selected is a dead letter any more.")
        model_admin.message_user(request, text, messages.WARNING)
    elif len(letters) > MAX_SELECTION:
        text = gettext("Select at most %(most)d at once.") % {"most": MAX_SELECTION}
        model_admin.message_user(request, text, messages.ERROR)
    elif request.POST.get("confirmed") == "yes":
        _carry_out(model_admin, request, [letter.pk for letter in letters], verb)
    else:
        return _ask(model_admin, request, letters, verb)
    return None


def _carry_out(
    model_admin: "ReadOnlyAdmin", request: HttpRequest, ids: list[int], verb: BulkVerb
) -> None:
    """The deed and its log entries are one transaction, for those that are still dead letters."""
    try:
        with write_transaction(DeadLetter.objects.using_alias):
            dead = Message.objects.filter(pk__in=ids, state=State.DEAD_LETTERED)
            letters = list(dead.only("queue"))
            count = verb.act([letter.pk for letter in letters])
            log(request, letters, verb.log_flag, verb.log_text)
    except OperationalError as error:
        text = gettext("The database refused, nothing was changed: %(error)s") % {"error": error}
        model_admin.message_user(request, text, messages.ERROR)
    else:
        model_admin.message_user(request, verb.done % {"count": count}, messages.SUCCESS)


def _ask(
    model_admin: "ReadOnlyAdmin", request: HttpRequest, letters: list[Any], verb: BulkVerb
) -> TemplateResponse:
    request.current_app = model_admin.admin_site.name
    context = {
        **model_admin.admin_site.each_context(request),
        "title": verb.title,
        "opts": model_admin.opts,
        "verb": verb,
        "question": verb.question % {"count": len(letters)},
        "queues": sorted(Counter(letter.queue for letter in letters).items()),
        "ids": [letter.pk for letter in letters],
        "checkbox_name": ACTION_CHECKBOX_NAME,
        "list_url": request.get_full_path(),
    }
    return TemplateResponse(request, "admin/django_mqlite/confirm.html", context)
