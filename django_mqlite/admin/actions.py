"""Actions on one message, on selected messages and on all that match a filter.

Actions that could lose data need a confirmation first. Bulk actions run in batches for at most two
seconds per request; then the page offers to continue.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, cast

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import OperationalError
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..exceptions import MqliteError
from ..formatting import state_label
from ..models import DeadLetter, Message, Queue
from ..timing import epoch_ms
from ..transactions import write_transaction, yield_to_other_writers
from ..types import BulkCount, State
from ..verbs.base import BATCH
from ..verbs.references import format_ids
from .base import BaseAdmin, log, nothing_changed

MAX_SECONDS = 2.0
"""Seconds that the batches of one request may take, so that the user sees progress and can stop."""

SELECT_ACROSS = "select_across"
"""Django's form field for an action on all matching rows instead of the selection."""


class RedriveForm(forms.Form):
    into = forms.ChoiceField(label=_("Into queue"), required=False)
    rate = forms.FloatField(
        label=_("Messages per second"),
        required=False,
        min_value=1 / 3600,
        max_value=1_000_000,
        help_text=_("Spreads the messages out. Leave empty to make all of them due immediately."),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names = Queue.objects.order_by("name").values_list("name", flat=True)
        choices = [("", _("their own queues")), *((name, name) for name in names)]
        self.fields["into"].choices = choices  # type: ignore[attr-defined]


Options = Mapping[str, Any]
"""The fields of the action's form; `lease` is the fingerprint of the lease that the page showed,
`delay` the seconds until the first message is due when a rate is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action, with its texts and its permission (a codename of the app)."""

    name: str
    permission: str
    state: State
    """The state in which a message offers the action."""
    verb: Callable[[Sequence[int], Options], BulkCount]
    label: Any
    label_for_all: Any = None
    question: Any = None
    confirm: Any = None
    """The label of the button that confirms the question."""
    confirm_single: bool = True
    """True if the action on one message needs a confirmation; bulk actions always do."""
    done: Any
    refused: Any
    log_flag: int = CHANGE
    log_text: Callable[[Options], str]
    form: type[forms.Form] = forms.Form

    @property
    def is_deletion(self) -> bool:
        return self.log_flag == DELETION


def _redrive(ids: Sequence[int], options: Options) -> BulkCount:
    return DeadLetter.objects.redrive(
        ids,
        into=options.get("into") or None,
        rate=options.get("rate"),
        delay=options.get("delay", 0),
    )


def _redrive_log_text(options: Options) -> str:
    into = f" into {options['into']}" if options.get("into") else ""
    rate = f" at {options['rate']:g} per second" if options.get("rate") else ""
    return f"Redriven{into}{rate}."


def _purge(ids: Sequence[int], options: Options) -> BulkCount:
    return DeadLetter.objects.purge(ids)


def _run_now(ids: Sequence[int], options: Options) -> BulkCount:
    return BulkCount(sum(map(Message.objects.run_now, ids)))


def _cancel(ids: Sequence[int], options: Options) -> BulkCount:
    return BulkCount(sum(map(Message.objects.cancel, ids)))


def _release(ids: Sequence[int], options: Options) -> BulkCount:
    return BulkCount(sum(Message.objects.release(id, seen=options["lease"]) for id in ids))


REDRIVE = Action(
    name="redrive",
    permission="redrive_message",
    state=State.DEAD_LETTERED,
    verb=_redrive,
    label=_("Redrive"),
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
    refused=_("Nothing was redriven: the dead letters no longer exist."),
    log_text=_redrive_log_text,
    form=RedriveForm,
)

PURGE = Action(
    name="purge",
    permission="purge_message",
    state=State.DEAD_LETTERED,
    verb=_purge,
    label=_("Purge"),
    label_for_all=_("Purge all matching"),
    question=ngettext_lazy(
        "Purge %(count)d dead letter? It is deleted permanently.",
        "Purge %(count)d dead letters? They are deleted permanently.",
        "count",
    ),
    confirm=_("Purge"),
    done=ngettext_lazy("%(count)d dead letter purged.", "%(count)d dead letters purged.", "count"),
    refused=_("Nothing was purged: the dead letters no longer exist."),
    log_flag=DELETION,
    log_text=lambda _options: "Purged.",
)

RUN_NOW = Action(
    name="run_now",
    permission="change_message",
    state=State.SCHEDULED,
    verb=_run_now,
    label=_("Run now"),
    confirm_single=False,
    done=_("The message is due now."),
    refused=_("Nothing was changed: the message is no longer scheduled."),
    log_text=lambda _options: "Made due now.",
)

CANCEL = Action(
    name="cancel",
    permission="delete_message",
    state=State.SCHEDULED,
    verb=_cancel,
    label=_("Cancel message"),
    question=_("Cancel this scheduled message? It is deleted and never delivered."),
    confirm=_("Delete message"),
    done=_("The message was cancelled and deleted."),
    refused=_(
        "Nothing was cancelled: only scheduled messages that were never delivered can be cancelled."
    ),
    log_flag=DELETION,
    log_text=lambda _options: "Cancelled.",
)

RELEASE = Action(
    name="release",
    permission="release_message",
    state=State.LOCKED,
    verb=_release,
    label=_("Release lease"),
    question=_(
        "Release this lease? If its worker is still processing the message, the message is "
        "delivered again while the first delivery is running."
    ),
    confirm=_("Release lease"),
    done=_("The lease was released."),
    refused=_("The lease was not released: the lease shown on the page has already ended."),
    log_text=lambda _options: "Lease released.",
)

ACTIONS: Mapping[str, Action] = {
    action.name: action for action in (REDRIVE, PURGE, RUN_NOW, CANCEL, RELEASE)
}
"""The actions on a message's page, in the order of their buttons."""


def _confirmation(
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


def _is_confirmed(request: HttpRequest) -> bool:
    return request.POST.get("confirmed") == "yes"


def _report(model_admin: BaseAdmin, request: HttpRequest, action: Action, count: BulkCount) -> None:
    _warn_of_kept(model_admin, request, count)
    if count:
        model_admin.message_user(request, action.done % {"count": count}, messages.SUCCESS)
    elif not count.kept:
        model_admin.message_user(request, action.refused, messages.ERROR)


def _warn_of_kept(model_admin: BaseAdmin, request: HttpRequest, count: BulkCount) -> None:
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


def offered_actions(
    model_admin: BaseAdmin, request: HttpRequest, message: Message
) -> list[tuple[Action, str]]:
    """Return the actions that the message's state and the user's permissions allow, with URLs."""
    return [
        (action, model_admin.url(action.name, message.pk))
        for action in ACTIONS.values()
        if message.state == action.state and model_admin.holds(request, action.permission)
    ]


def act_on_message(
    model_admin: BaseAdmin, request: HttpRequest, id: int, action: Action
) -> HttpResponse:
    """Ask for confirmation if necessary, or run the action, and redirect."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    if not (
        model_admin.has_view_permission(request) and model_admin.holds(request, action.permission)
    ):
        raise PermissionDenied
    message = Message.objects.filter(pk=id).first()
    if message is None:
        text = gettext("Message #%(id)d no longer exists.") % {"id": id}
        model_admin.message_user(request, text, messages.WARNING)
    elif message.state != action.state:
        text = gettext("“%(action)s” is not possible: #%(id)d is %(state)s, not %(expected)s.") % {
            "action": action.label,
            "id": id,
            "state": state_label(message.state),
            "expected": state_label(action.state),
        }
        model_admin.message_user(request, text, messages.ERROR)
    elif action.confirm_single and not _is_confirmed(request):
        return _confirmation(
            model_admin,
            request,
            action,
            question=action.question % {"count": 1},
            button=action.confirm,
            details=[f"{message}: {message.subject}" if message.subject else str(message)],
            hidden=[("lease", request.POST.get("lease", ""))],
            back=_url_after(model_admin, id),
        )
    else:
        _run_on_message(model_admin, request, message, action)
    return HttpResponseRedirect(_url_after(model_admin, id))


def _run_on_message(
    model_admin: BaseAdmin, request: HttpRequest, message: Message, action: Action
) -> None:
    options = {"lease": request.POST.get("lease", "")}
    try:
        with write_transaction(Message.objects.database):
            count = action.verb([message.pk], options)
            if count:
                log(request, [message], action.log_flag, action.log_text(options))
    except (OperationalError, MqliteError) as error:
        model_admin.message_user(request, nothing_changed(error), messages.ERROR)
    else:
        _report(model_admin, request, action, count)


def _url_after(model_admin: BaseAdmin, id: int) -> str:
    """Return the URL of the message's page, or of the list if the list no longer has it."""
    if model_admin.model.objects.filter(pk=id).exists():
        return model_admin.url("change", id)
    return model_admin.url("changelist")


# Selected dead letters, and all that match


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The position of a bulk action, kept in hidden fields between requests.

    It is validated but not signed: a forged position grants nothing beyond the permission.
    At most `left` messages are handled, and only those dead-lettered by `until`, so that a redriven
    message that fails again is left out. The next batch starts after the message with these values
    of `queue`, `finished_at` and `id`.
    """

    left: int
    until: int
    due: int
    """The due time of the next message with a rate, in epoch milliseconds."""
    done: int = 0
    queue: str = ""
    finished_at: int = 0
    id: int = 0

    @classmethod
    def start(cls, count: int) -> Self:
        now = timing.now_ms()
        # If the clock was set back, some dead letters may be dated in the future.
        last_finished = DeadLetter.objects.aggregate(last=Max("finished_at"))["last"]
        return cls(
            left=count, until=max(now, epoch_ms(last_finished) if last_finished else 0), due=now
        )

    @classmethod
    def from_post(cls, data: Mapping[str, Any]) -> Self:
        """Read the hidden fields; raise BadRequest for values that no page contains."""
        names = ("left", "until", "due", "done", "finished_at", "id")
        try:
            numbers = {name: int(data[f"progress_{name}"]) for name in names}
        except (KeyError, ValueError) as error:
            raise BadRequest("invalid progress of an action") from error
        if not all(0 <= number < 2**53 for number in numbers.values()):
            raise BadRequest("invalid progress of an action")
        return cls(queue=data.get("progress_queue", ""), **numbers)

    def hidden(self) -> list[tuple[str, Any]]:
        return [(f"progress_{name}", value) for name, value in asdict(self).items()]

    def next_batch(self, letters: QuerySet[Any]) -> list[Any]:
        """Return dead letters in the order of their index: by queue, then the oldest first."""
        after = Q(finished_at__gt=self.finished_at) | Q(pk__gt=self.id)
        names = Queue.objects.filter(name__gte=self.queue).order_by("name")
        for name in names.values_list("name", flat=True):
            batch = letters.filter(queue=name, finished_at__lte=self.until)
            if name == self.queue:
                batch = batch.filter(after, finished_at__gte=self.finished_at)
            batch = batch.order_by("finished_at", "pk").only("queue", "finished_at")
            if rows := list(batch[: min(BATCH, self.left)]):
                return rows
        return []

    def after(self, batch: Sequence[Any], count: BulkCount, rate: float | None) -> Self:
        """Return the progress after this batch; an empty batch ends the action."""
        if not batch:
            return replace(self, left=0)
        return replace(
            self,
            left=self.left - len(batch),
            done=self.done + count,
            due=self.due + int(count * 1000 / rate) if rate else self.due,
            queue=batch[-1].queue,
            finished_at=epoch_ms(batch[-1].finished_at) if batch[-1].finished_at else 0,
            id=batch[-1].pk,
        )


def act_on_dead_letters(
    model_admin: BaseAdmin, request: HttpRequest, letters: QuerySet[Any], action: Action
) -> TemplateResponse | None:
    """Return the page to confirm or to continue, or None to go back to the list."""
    form = action.form(request.POST if _is_confirmed(request) else None)
    if _is_confirmed(request) and form.is_valid():
        return _run_on_dead_letters(model_admin, request, letters, action, form.cleaned_data)
    by_queue = letters.order_by().values_list("queue").annotate(Count("pk")).order_by("queue")
    counts = dict(by_queue)
    if not counts:
        model_admin.message_user(request, action.refused, messages.WARNING)
        return None
    count = sum(counts.values())
    return _confirmation(
        model_admin,
        request,
        action,
        question=action.question % {"count": count},
        button=action.confirm,
        details=[f"{queue}: {count}" for queue, count in counts.items()],
        hidden=[*_same_letters(request, action), *Progress.start(count).hidden()],
        back=request.get_full_path(),
        form=form,
    )


def _run_on_dead_letters(
    model_admin: BaseAdmin,
    request: HttpRequest,
    letters: QuerySet[Any],
    action: Action,
    options: Options,
) -> TemplateResponse | None:
    """Run batches until all messages are handled or the request has taken MAX_SECONDS."""
    progress = Progress.from_post(request.POST)
    kept = BulkCount()
    entry = _entry_for_matching(request, action, options) if _selects_all(request) else None
    done_before = progress.done
    stop_at = time.monotonic() + MAX_SECONDS
    database = DeadLetter.objects.database
    try:
        while progress.left > 0 and time.monotonic() < stop_at:
            with yield_to_other_writers(database), write_transaction(database):
                batch = progress.next_batch(letters)
                count = action.verb([letter.pk for letter in batch], _with_delay(options, progress))
                progress = progress.after(batch, count, options.get("rate"))
                if entry is None:
                    rows = [letter for letter in batch if letter.pk not in count.kept]
                    _log_selected(request, rows, action, options)
                elif count:
                    entry.object_repr = _matching(request, progress.done - done_before)
                    entry.save()
                kept = kept.plus(count)
    except (OperationalError, MqliteError) as error:
        text = gettext("Stopped after %(done)d: %(error)s")
        text %= {"done": progress.done, "error": error}
        model_admin.message_user(request, text, messages.ERROR)
        return None
    if progress.left > 0:
        _warn_of_kept(model_admin, request, kept)
        return _continuation(model_admin, request, action, options, progress)
    done = BulkCount(progress.done, kept.referenced, kept.duplicates)
    _report(model_admin, request, action, done)
    return None


def _with_delay(options: Options, progress: Progress) -> Options:
    """Add the delay that continues the rate of the previous batches."""
    if not options.get("rate"):
        return options
    return {**options, "delay": max(0, progress.due - timing.now_ms()) / 1000}


def _log_selected(
    request: HttpRequest, letters: Sequence[Any], action: Action, options: Options
) -> None:
    # Logged as messages, because redriven messages are no longer dead letters.
    rows = [Message(pk=letter.pk, queue=letter.queue) for letter in letters]
    log(request, rows, action.log_flag, action.log_text(options))


def _entry_for_matching(request: HttpRequest, action: Action, options: Options) -> LogEntry:
    """Return the log entry of this request, which is saved with each batch."""
    return LogEntry(
        user_id=cast("int", request.user.pk),
        content_type=ContentType.objects.get_for_model(Message),
        action_flag=action.log_flag,
        change_message=action.log_text(options),
    )


def _matching(request: HttpRequest, count: int) -> str:
    query = request.GET.urlencode()
    text = f"{count} of the dead letters with {query}" if query else f"{count} of all dead letters"
    return text[:200]


def _continuation(
    model_admin: BaseAdmin,
    request: HttpRequest,
    action: Action,
    options: Options,
    progress: Progress,
) -> TemplateResponse:
    """Return the page whose button continues the action."""
    field_values = [(name, value) for name, value in options.items() if value not in (None, "")]
    text = gettext("%(done)s %(left)d left.")
    return _confirmation(
        model_admin,
        request,
        action,
        question=text % {"done": action.done % {"count": progress.done}, "left": progress.left},
        button=_("Continue"),
        hidden=[*_same_letters(request, action), *field_values, *progress.hidden()],
        back=request.get_full_path(),
    )


def _same_letters(request: HttpRequest, action: Action) -> list[tuple[str, Any]]:
    """Return the fields that repeat the action for the same selection or filter."""
    across = [(SELECT_ACROSS, 1)] if _selects_all(request) else []
    ids = request.POST.getlist(ACTION_CHECKBOX_NAME)
    return [("action", action.name), *across, *((ACTION_CHECKBOX_NAME, id) for id in ids)]


def _selects_all(request: HttpRequest) -> bool:
    return request.POST.get(SELECT_ACROSS) == "1"
