"""The actions on messages, and the buttons on a message's page.

Actions that could lose data need a confirmation first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, DELETION
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.text import get_text_list
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from ..exceptions import MqliteError
from ..formatting import state_label
from ..models import DeadLetter, Message
from ..transactions import write_transaction
from ..types import UNFINISHED, BulkCount, State
from ..verbs.base import BATCH
from ..verbs.references import format_ids, referenced
from .base import BaseAdmin, log, nothing_changed


class ActionForm(forms.Form):
    """The options of an action: none, unless a subclass adds fields."""

    def __init__(self, data: Any, *, queues: Sequence[str]) -> None:
        """`queues` are the names of the queues that the user may see."""
        super().__init__(data)


class RedriveForm(ActionForm):
    into = forms.ChoiceField(label=_("Into queue"), required=False)
    rate = forms.FloatField(
        label=_("Messages per second"),
        required=False,
        min_value=1 / 3600,
        max_value=1_000_000,
        help_text=_("Spreads the messages out. Leave empty to make all of them due immediately."),
    )

    def __init__(self, data: Any, *, queues: Sequence[str]) -> None:
        super().__init__(data, queues=queues)
        choices = [("", _("their own queues")), *((name, name) for name in queues)]
        self.fields["into"].choices = choices  # type: ignore[attr-defined]


Options = Mapping[str, Any]
"""The fields of the action's form; `lease` is the fingerprint of the lease that the page showed,
`delay` the seconds until the first message is due when a rate is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action, with its texts and its permission (a codename of the app)."""

    name: str
    permission: str
    states: Sequence[State]
    """The states in which the action is possible."""
    condition: Q = field(default_factory=Q)
    """A further condition on a message in one of the states."""
    verb: Callable[[Sequence[Message], Options], BulkCount]
    batch: int = BATCH
    """Maximum messages in one transaction."""
    label: Any
    label_for_selected: Any
    label_for_all: Any
    question: Any
    confirm: Any
    """The label of the button that confirms the question."""
    confirm_single: bool = True
    """True if the action on one message needs a confirmation; bulk actions always do."""
    done: Any
    done_single: Any
    refused: Any
    log_flag: int = CHANGE
    log_text: Callable[[Options], str]
    form: type[ActionForm] = ActionForm

    def is_possible(self, message: Message) -> bool:
        """Return whether the message is in one of the states and meets the condition."""
        return message.state in self.states and (
            not self.condition or Message.objects.filter(self.condition, pk=message.pk).exists()
        )

    @property
    def is_deletion(self) -> bool:
        return self.log_flag == DELETION


SLOW_BATCH = 100
"""Maximum messages in one transaction of an action whose verb takes one message at a time."""


def _ids(rows: Sequence[Message]) -> list[int]:
    return [row.pk for row in rows]


def _redrive(rows: Sequence[Message], options: Options) -> BulkCount:
    return DeadLetter.objects.redrive(
        _ids(rows),
        into=options.get("into") or None,
        rate=options.get("rate"),
        delay=options.get("delay", 0),
    )


def _redrive_log_text(options: Options) -> str:
    into = f" into {options['into']}" if options.get("into") else ""
    rate = f" at {options['rate']:g} per second" if options.get("rate") else ""
    return f"Redriven{into}{rate}."


def _purge(rows: Sequence[Message], options: Options) -> BulkCount:
    return DeadLetter.objects.purge(_ids(rows))


def _run_now(rows: Sequence[Message], options: Options) -> BulkCount:
    return BulkCount(sum(map(Message.objects.run_now, _ids(rows))))


def _cancel(rows: Sequence[Message], options: Options) -> BulkCount:
    kept = referenced(Message.objects.connection, _ids(rows))
    count = sum(Message.objects.cancel(id) for id in _ids(rows) if id not in kept)
    return BulkCount(count, sorted(kept))


def _release(rows: Sequence[Message], options: Options) -> BulkCount:
    """Release the lease that the page showed, or the leases that the rows have."""
    return BulkCount(
        sum(
            Message.objects.release(row.pk, seen=options.get("lease", row.lease_fingerprint) or "")
            for row in rows
        )
    )


def _discard(rows: Sequence[Message], options: Options) -> BulkCount:
    return BulkCount(Message.objects.discard_many(_ids(rows)))


def _activate(rows: Sequence[Message], options: Options) -> BulkCount:
    return BulkCount(Message.objects.activate_many(_ids(rows)))


REDRIVE = Action(
    name="redrive",
    permission="redrive_message",
    states=(State.DEAD_LETTERED,),
    verb=_redrive,
    label=_("Redrive"),
    label_for_selected=_("Redrive selected dead letters"),
    label_for_all=_("Redrive all matching"),
    question=ngettext_lazy(
        "Redrive %(count)d dead letter? Its delivery count starts again at 0.",
        "Redrive %(count)d dead letters? Their delivery counts start again at 0.",
        "count",
    ),
    confirm=_("Redrive"),
    confirm_single=False,
    done=ngettext_lazy(
        "%(count)d dead letter redriven.", "%(count)d dead letters redriven.", "count"
    ),
    done_single=_("%(message)s was redriven."),
    refused=_("Nothing was redriven: the dead letters no longer exist."),
    log_text=_redrive_log_text,
    form=RedriveForm,
)

PURGE = Action(
    name="purge",
    permission="purge_message",
    states=(State.DEAD_LETTERED,),
    verb=_purge,
    label=_("Purge"),
    label_for_selected=_("Purge selected dead letters"),
    label_for_all=_("Purge all matching"),
    question=ngettext_lazy(
        "Purge %(count)d dead letter? It is deleted permanently.",
        "Purge %(count)d dead letters? They are deleted permanently.",
        "count",
    ),
    confirm=_("Purge"),
    done=ngettext_lazy("%(count)d dead letter purged.", "%(count)d dead letters purged.", "count"),
    done_single=_("%(message)s was purged."),
    refused=_("Nothing was purged: the dead letters no longer exist."),
    log_flag=DELETION,
    log_text=lambda _options: "Purged.",
)

RUN_NOW = Action(
    name="run_now",
    permission="change_message",
    states=(State.SCHEDULED,),
    verb=_run_now,
    batch=SLOW_BATCH,
    label=_("Run now"),
    label_for_selected=_("Run selected messages now"),
    label_for_all=_("Run all matching now"),
    question=ngettext_lazy(
        "Make %(count)d scheduled message due now?",
        "Make %(count)d scheduled messages due now?",
        "count",
    ),
    confirm=_("Run now"),
    confirm_single=False,
    done=ngettext_lazy("%(count)d message is due now.", "%(count)d messages are due now.", "count"),
    done_single=_("%(message)s is due now."),
    refused=_("Nothing was changed: no message is scheduled any more."),
    log_text=lambda _options: "Made due now.",
)

CANCEL = Action(
    name="cancel",
    permission="delete_message",
    states=(State.SCHEDULED,),
    condition=Q(delivery_count=0, errors__isnull=True),
    verb=_cancel,
    batch=SLOW_BATCH,
    label=_("Cancel message"),
    label_for_selected=_("Cancel selected messages"),
    label_for_all=_("Cancel all matching"),
    question=ngettext_lazy(
        "Cancel %(count)d scheduled message? It is deleted and never delivered.",
        "Cancel %(count)d scheduled messages? They are deleted and never delivered.",
        "count",
    ),
    confirm=_("Delete permanently"),
    done=ngettext_lazy(
        "%(count)d message cancelled and deleted.",
        "%(count)d messages cancelled and deleted.",
        "count",
    ),
    done_single=_("%(message)s was cancelled and deleted."),
    refused=_(
        "Nothing was cancelled: only scheduled messages that were never delivered can be cancelled."
    ),
    log_flag=DELETION,
    log_text=lambda _options: "Cancelled.",
)

RELEASE = Action(
    name="release",
    permission="release_message",
    states=(State.LOCKED,),
    verb=_release,
    batch=SLOW_BATCH,
    label=_("Release lease"),
    label_for_selected=_("Release the leases of selected messages"),
    label_for_all=_("Release all matching"),
    question=ngettext_lazy(
        "Release %(count)d lease? If its worker is still processing the message, the message is "
        "delivered again while the first delivery is running.",
        "Release %(count)d leases? If their workers are still processing the messages, the "
        "messages are delivered again while the first deliveries are running.",
        "count",
    ),
    confirm=_("Release"),
    done=ngettext_lazy("%(count)d lease released.", "%(count)d leases released.", "count"),
    done_single=_("The lease of %(message)s was released."),
    refused=_("Nothing was released: the leases shown on the page have already ended."),
    log_text=lambda _options: "Lease released.",
)

ACTIVATE = Action(
    name="activate",
    permission="change_message",
    states=(State.DEFERRED,),
    verb=_activate,
    label=_("Activate"),
    label_for_selected=_("Activate selected messages"),
    label_for_all=_("Activate all matching"),
    question=ngettext_lazy(
        "Activate %(count)d deferred message?", "Activate %(count)d deferred messages?", "count"
    ),
    confirm=_("Activate"),
    confirm_single=False,
    done=ngettext_lazy("%(count)d message activated.", "%(count)d messages activated.", "count"),
    done_single=_("%(message)s was activated."),
    refused=_("Nothing was activated: the messages are no longer deferred."),
    log_text=lambda _options: "Activated.",
)

DISCARD = Action(
    name="discard",
    permission="discard_message",
    states=UNFINISHED,
    verb=_discard,
    label=_("Discard"),
    label_for_selected=_("Discard selected messages"),
    label_for_all=_("Discard all matching"),
    question=ngettext_lazy(
        "Discard %(count)d message? It becomes a dead letter. If a handler is running, it is "
        "cancelled or loses its lease.",
        "Discard %(count)d messages? They become dead letters. Handlers that are running are "
        "cancelled or lose their leases.",
        "count",
    ),
    confirm=_("Discard"),
    done=ngettext_lazy("%(count)d message discarded.", "%(count)d messages discarded.", "count"),
    done_single=_("%(message)s was discarded."),
    refused=_("Nothing was discarded: the messages have already ended."),
    log_text=lambda _options: "Discarded.",
)

ACTIONS: Mapping[str, Action] = {
    action.name: action for action in (REDRIVE, PURGE, RUN_NOW, CANCEL, RELEASE, ACTIVATE, DISCARD)
}
"""The actions on messages, in the order of their buttons."""


def confirmation(
    model_admin: BaseAdmin,
    request: HttpRequest,
    action: Action,
    *,
    question: str,
    button: Any,
    hidden: Sequence[tuple[str, Any]],
    back: str,
    **context: Any,
) -> TemplateResponse:
    """Return the page whose button posts the confirmed action to the same URL."""
    return model_admin.render(
        request,
        "confirm",
        title=action.label,
        action=action,
        question=question,
        button=button,
        hidden=[("confirmed", "yes"), *hidden],
        back=back,
        **context,
    )


def is_confirmed(request: HttpRequest) -> bool:
    return request.POST.get("confirmed") == "yes"


def report(
    model_admin: BaseAdmin, request: HttpRequest, action: Action, count: BulkCount, done: str
) -> None:
    """Show the user the text `done` if the action has changed something, or why it has not."""
    warn_of_kept(model_admin, request, count)
    if count:
        model_admin.message_user(request, done, messages.SUCCESS)
    elif not count.kept:
        model_admin.message_user(request, action.refused, messages.ERROR)


def warn_of_kept(model_admin: BaseAdmin, request: HttpRequest, count: BulkCount) -> None:
    texts = {
        gettext("Kept because other tables refer to them: %(ids)s"): count.referenced,
        gettext(
            "Kept because an unfinished message has their unique key: %(ids)s"
        ): count.duplicates,
    }
    for text, ids in texts.items():
        if ids:
            model_admin.message_user(request, text % {"ids": format_ids(ids)}, messages.WARNING)


# One message


def is_permitted(
    model_admin: BaseAdmin, request: HttpRequest, action: Action, message: Message | None = None
) -> bool:
    """Return whether the user may run the action, on this message if one is given."""
    return model_admin.has_view_permission(request, message) and model_admin.holds(
        request, action.permission
    )


def offered_actions(
    model_admin: BaseAdmin, request: HttpRequest, message: Message
) -> list[tuple[Action, str]]:
    """Return the actions that are possible on the message and permitted to the user, with URLs."""
    return [
        (action, model_admin.url(action.name, message.pk))
        for action in ACTIONS.values()
        if action.is_possible(message) and is_permitted(model_admin, request, action, message)
    ]


def act_on_message(
    model_admin: BaseAdmin, request: HttpRequest, id: int, action: Action
) -> HttpResponse:
    """Ask for confirmation if necessary, or run the action, and redirect."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    if not is_permitted(model_admin, request, action):
        raise PermissionDenied
    message = model_admin.get_object(request, str(id))
    if message is not None and not is_permitted(model_admin, request, action, message):
        raise PermissionDenied
    if message is None:
        text = gettext("There is no %(kind)s #%(id)d any more.")
        text %= {"kind": model_admin.opts.verbose_name, "id": id}
        model_admin.message_user(request, text, messages.WARNING)
    elif message.state not in action.states:
        text = gettext("“%(action)s” is not possible: #%(id)d is %(state)s, not %(expected)s.") % {
            "action": action.label,
            "id": id,
            "state": state_label(message.state),
            "expected": get_text_list([state_label(state) for state in action.states]),
        }
        model_admin.message_user(request, text, messages.ERROR)
    elif not action.is_possible(message):
        model_admin.message_user(request, action.refused, messages.ERROR)
    elif action.confirm_single and not is_confirmed(request):
        return confirmation(
            model_admin,
            request,
            action,
            question=action.question % {"count": 1},
            button=action.confirm,
            details=[f"{message}: {message.subject}" if message.subject else str(message)],
            hidden=[("lease", request.POST.get("lease", ""))],
            back=_url_after(model_admin, request, id),
        )
    else:
        _run_on_message(model_admin, request, message, action)
    return HttpResponseRedirect(_url_after(model_admin, request, id))


def _run_on_message(
    model_admin: BaseAdmin, request: HttpRequest, message: Message, action: Action
) -> None:
    options = {"lease": request.POST.get("lease", "")}
    try:
        with write_transaction(Message.objects.database):
            count = action.verb([message], options)
            if count:
                log(request, [message], action.log_flag, action.log_text(options))
    except (OperationalError, MqliteError) as error:
        model_admin.message_user(request, nothing_changed(error), messages.ERROR)
    else:
        report(model_admin, request, action, count, action.done_single % {"message": message})


def _url_after(model_admin: BaseAdmin, request: HttpRequest, id: int) -> str:
    """Return the URL of the message's page, or of the list if the list no longer has it."""
    if model_admin.get_object(request, str(id)) is not None:
        return model_admin.url("change", id)
    return model_admin.url("changelist")
