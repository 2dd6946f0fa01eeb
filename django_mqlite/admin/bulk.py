"""A verb for many dead letters, those selected or all that match: asked about, then carried out."""

from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import OperationalError
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext

from ..exceptions import MqliteError
from ..verbs.dead_letters import format_ids
from .asking import Asked, ask, page
from .bulk_verbs import BulkVerb
from .read_only import ReadOnlyAdmin
from .run import Run, work_on

ACROSS = "select_across"
"""Django's word for "all that match and not only those selected"."""


def carry_out_or_ask(
    model_admin: ReadOnlyAdmin, request: HttpRequest, letters: QuerySet[Any], verb: BulkVerb
) -> TemplateResponse | None:
    """The confirmation page; once confirmed the deed, and the page of its progress if it is long.

    None is "back to the list", where what was done is said.
    """
    confirmed = request.POST.get("confirmed") == "yes"
    form = verb.form(request.POST if confirmed else None)
    if confirmed and form.is_valid():
        return _carry_out(model_admin, request, letters, verb, form.cleaned_data)
    found = letters.order_by().values_list("queue").annotate(Count("pk")).order_by("queue")
    counts = list(found)
    if not counts:
        _say_none_left(model_admin, request)
        return None
    count = sum(count for _queue, count in counts)
    asked = Asked(
        question=verb.question % {"count": count},
        details=[f"{queue}: {count}" for queue, count in counts],
        button=verb.button,
        hidden=[*_answer(request, verb), *Run.of(count).hidden()],
        back=request.get_full_path(),
        is_deletion=verb.is_deletion,
    )
    return ask(model_admin, request, asked, title=verb.title, form=form)


def _carry_out(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    letters: QuerySet[Any],
    verb: BulkVerb,
    options: dict[str, Any],
) -> TemplateResponse | None:
    run = Run.read(request.POST)
    label = "" if not _is_across(request) else request.GET.urlencode() or "everything"
    try:
        kept = work_on(run, letters, verb, options, request=request, label=label)
    except (OperationalError, MqliteError) as error:
        text = gettext("Stopped after %(done)d: %(error)s") % {"done": run.done, "error": error}
        model_admin.message_user(request, text, messages.ERROR)
    else:
        if kept:
            text = gettext("Kept, because other tables refer to them: %(ids)s") % {
                "ids": format_ids(kept)
            }
            model_admin.message_user(request, text, messages.WARNING)
        if not run.is_over:
            return _progress(model_admin, request, verb, run, options)
        if run.done:
            model_admin.message_user(request, verb.done % {"count": run.done}, messages.SUCCESS)
        elif not run.kept:
            _say_none_left(model_admin, request)
    return None


def _say_none_left(model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
    text = gettext("None of these is a dead letter any more.")
    model_admin.message_user(request, text, messages.WARNING)


def _progress(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    verb: BulkVerb,
    run: Run,
    options: dict[str, Any],
) -> TemplateResponse:
    chosen = [(name, value) for name, value in options.items() if value not in (None, "")]
    context = {
        "title": verb.title,
        "done": run.done,
        "total": run.total,
        "hidden": [*_answer(request, verb), *chosen, *run.hidden()],
        "back": request.get_full_path(),
    }
    return page(model_admin, request, "progress", context)


def _answer(request: HttpRequest, verb: BulkVerb) -> list[tuple[str, Any]]:
    """The same verb for the same letters, and "yes"."""
    ids = request.POST.getlist(ACTION_CHECKBOX_NAME)
    across = [(ACROSS, 1)] if _is_across(request) else []
    selected = [(ACTION_CHECKBOX_NAME, id) for id in ids]
    return [("action", verb.action), ("confirmed", "yes"), *across, *selected]


def _is_across(request: HttpRequest) -> bool:
    return request.POST.get(ACROSS) == "1"
