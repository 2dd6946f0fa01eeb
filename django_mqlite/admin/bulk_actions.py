"""Actions on selected messages or on all that match, in batches.

The batches of one request take at most two seconds; then the page offers to continue or to stop.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, cast

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import OperationalError
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import timing
from ..exceptions import MqliteError
from ..models import DeadLetter, Message, Queue
from ..timing import epoch_ms, moment
from ..transactions import write_transaction, yield_to_other_writers
from ..types import BulkCount, State
from ..verbs.base import BATCH
from ..verbs.references import format_ids
from .actions import Action, Options, confirmation, is_confirmed, is_permitted, report, warn_of_kept
from .base import BaseAdmin

MAX_SECONDS = 2.0
"""Seconds that the batches of one request may take, so that the user sees progress and can stop."""

SELECT_ACROSS = "select_across"
"""Django's form field for an action on all matching rows instead of the selection."""


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
    entry: int = 0
    """The id of the action's entry in the admin log; 0 before the first batch."""
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
        names = ("left", "until", "due", "done", "entry", "finished_at", "id")
        try:
            numbers = {name: int(data[f"progress_{name}"]) for name in names}
        except (KeyError, ValueError) as error:
            raise BadRequest("invalid progress of an action") from error
        if not all(0 <= number < 2**53 for number in numbers.values()):
            raise BadRequest("invalid progress of an action")
        return cls(queue=data.get("progress_queue", ""), **numbers)

    def hidden(self) -> list[tuple[str, Any]]:
        return [(f"progress_{name}", value) for name, value in asdict(self).items()]

    def next_batch(self, matching: QuerySet[Any], action: Action, kept: Sequence[int]) -> list[Any]:
        """Return dead letters in the order of their index: by queue, then the oldest first."""
        after = Q(finished_at__gt=self.finished_at) | Q(pk__gt=self.id)
        names = Queue.objects.filter(name__gte=self.queue).order_by("name")
        dead = matching.filter(state=State.DEAD_LETTERED, finished_at__lte=self.until)
        for name in names.values_list("name", flat=True):
            batch = dead.filter(queue=name)
            if name == self.queue:
                batch = batch.filter(after, finished_at__gte=self.finished_at)
            batch = batch.order_by("finished_at", "pk").only("queue", "finished_at")
            if rows := list(batch[: min(action.batch, BATCH, self.left)]):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedProgress(Progress):
    """The position of an action after which a message is no longer in one of the action's states.

    `until` is the id of the newest message when the action began, and `due` is the time.
    """

    @classmethod
    def start(cls, count: int) -> Self:
        return cls(left=count, until=Message.objects.newest_id(), due=timing.now_ms())

    def next_batch(self, matching: QuerySet[Any], action: Action, kept: Sequence[int]) -> list[Any]:
        """Return messages of one state, which the index of that state finds, except `kept`."""
        matching = matching.filter(action.condition, pk__lte=self.until).exclude(pk__in=kept)
        for state in action.states:
            batch = matching.filter(state=state)
            if state == State.LOCKED:
                # A lease that began later is not one that the user has confirmed to end.
                batch = batch.filter(locked_at__lte=moment(self.due))
            batch = batch.order_by().only("queue", "lock_token")
            if rows := list(batch[: min(action.batch, BATCH, self.left)]):
                return rows
        return []

    def after(self, batch: Sequence[Any], count: BulkCount, rate: float | None) -> Self:
        if not batch:
            return replace(self, left=0)
        return replace(self, left=self.left - len(batch), done=self.done + count)


def _progress_of(action: Action) -> type[Progress]:
    return Progress if State.DEAD_LETTERED in action.states else UnfinishedProgress


def act_on_many(
    model_admin: BaseAdmin, request: HttpRequest, matching: QuerySet[Any], action: Action
) -> TemplateResponse | None:
    """Act on messages on which the action is possible and ignore others.

    Returns the page to confirm or to continue, or None to go back to the list.
    """
    if "stop" in request.POST:
        progress = _progress_of(action).from_post(request.POST)
        text = gettext("Stopped: %(done)s %(left)d were left.")
        text %= {"done": action.done % {"count": progress.done}, "left": progress.left}
        model_admin.message_user(request, text, messages.WARNING)
        return None
    form = action.form(
        request.POST if is_confirmed(request) else None, queues=model_admin.queue_names(request)
    )
    if is_confirmed(request) and form.is_valid():
        return _run_on_many(model_admin, request, matching, action, form.cleaned_data)
    counts = _count_by_queue(matching, action)
    if not counts:
        model_admin.message_user(request, action.refused, messages.WARNING)
        return None
    count = sum(counts.values())
    return confirmation(
        model_admin,
        request,
        action,
        question=action.question % {"count": count},
        button=action.confirm,
        details=[f"{queue}: {count}" for queue, count in sorted(counts.items())],
        hidden=[*_same_messages(request, action), *_progress_of(action).start(count).hidden()],
        back=request.get_full_path(),
        form=form,
    )


def _count_by_queue(matching: QuerySet[Any], action: Action) -> Counter[str]:
    """Count the messages by queue; one query for each state, served by the index of that state."""
    counts: Counter[str] = Counter()
    for state in action.states:
        in_state = matching.filter(action.condition, state=state).order_by()
        counts.update(dict(in_state.values_list("queue").annotate(Count("pk"))))
    return counts


def _run_on_many(
    model_admin: BaseAdmin,
    request: HttpRequest,
    matching: QuerySet[Any],
    action: Action,
    options: Options,
) -> TemplateResponse | None:
    """Run batches until all messages are handled or the request has taken MAX_SECONDS."""
    progress = _progress_of(action).from_post(request.POST)
    kept = BulkCount()
    stop_at = time.monotonic() + MAX_SECONDS
    database = Message.objects.database
    try:
        while progress.left > 0 and time.monotonic() < stop_at:
            with yield_to_other_writers(database), write_transaction(database):
                batch = progress.next_batch(matching, action, kept.kept)
                _require_permission(model_admin, request, action, batch)
                count = action.verb(batch, _with_delay(options, progress))
                following = progress.after(batch, count, options.get("rate"))
                if count:
                    rows = [row for row in batch if row.pk not in count.kept]
                    following = _logged(model_admin, request, action, options, following, rows)
            progress, kept = following, kept.plus(count)
    except (OperationalError, MqliteError, PermissionDenied) as error:
        warn_of_kept(model_admin, request, kept)
        text = gettext("Stopped by an error: %(done)s %(left)d were left. %(error)s")
        text %= {
            "done": action.done % {"count": progress.done},
            "left": progress.left,
            "error": error,
        }
        model_admin.message_user(request, text, messages.ERROR)
        return None
    if progress.left > 0:
        warn_of_kept(model_admin, request, kept)
        return _continuation(model_admin, request, action, options, progress)
    count = BulkCount(progress.done, kept.referenced, kept.duplicates)
    report(model_admin, request, action, count, action.done % {"count": count})
    return None


def _require_permission(
    model_admin: BaseAdmin, request: HttpRequest, action: Action, batch: Sequence[Any]
) -> None:
    """Raise PermissionDenied for a message that the project's admin does not show to the user."""
    for row in batch:
        if not is_permitted(model_admin, request, action, row):
            raise PermissionDenied(gettext("You may not change %(message)s.") % {"message": row})


def _with_delay(options: Options, progress: Progress) -> Options:
    """Add the delay that continues the rate of the previous batches."""
    if not options.get("rate"):
        return options
    return {**options, "delay": max(0, progress.due - timing.now_ms()) / 1000}


# The admin log


def _logged(
    model_admin: BaseAdmin,
    request: HttpRequest,
    action: Action,
    options: Options,
    progress: Progress,
    rows: Sequence[Any],
) -> Progress:
    """Write or update the one log entry of the action; return the progress with its id.

    It is in the transaction of the batch, and has the number of messages so far.
    """
    user, text = cast("int", request.user.pk), action.log_text(options)
    own = LogEntry.objects.filter(user=user, object_id=None, change_message__startswith=text)
    entry = own.filter(pk=progress.entry).first() or LogEntry(
        user_id=user,
        content_type=ContentType.objects.get_for_model(Message),
        action_flag=action.log_flag,
        change_message=text,
    )
    selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
    if selects_all(request):
        entry.object_repr = _matching(model_admin, request, progress.done)
    elif len(selected) == 1:
        # Logged as a message, because a redriven message is no longer a dead letter.
        message = Message(pk=rows[0].pk, queue=rows[0].queue)
        entry.object_id, entry.object_repr = str(message.pk), str(message)
    else:
        entry.object_repr = f"{progress.done} selected {_noun(model_admin)}"
        entry.change_message += f" {format_ids([row.pk for row in rows])}."
    entry.save()
    return replace(progress, entry=entry.pk)


def _matching(model_admin: BaseAdmin, request: HttpRequest, count: int) -> str:
    query, noun = request.GET.urlencode(), _noun(model_admin)
    text = f"{count} of the {noun} with {query}" if query else f"{count} of all {noun}"
    return text[:200]


def _noun(model_admin: BaseAdmin) -> str:
    return "dead letters" if model_admin.model is DeadLetter else "messages"


# The page between two requests


def _continuation(
    model_admin: BaseAdmin,
    request: HttpRequest,
    action: Action,
    options: Options,
    progress: Progress,
) -> TemplateResponse:
    """Return the page whose buttons continue or stop the action."""
    field_values = [(name, value) for name, value in options.items() if value not in (None, "")]
    text = gettext("%(done)s %(left)d left.")
    return confirmation(
        model_admin,
        request,
        action,
        question=text % {"done": action.done % {"count": progress.done}, "left": progress.left},
        button=_("Continue"),
        can_stop=True,
        hidden=[*_same_messages(request, action), *field_values, *progress.hidden()],
        back=request.get_full_path(),
    )


def _same_messages(request: HttpRequest, action: Action) -> list[tuple[str, Any]]:
    """Return the fields that repeat the action for the same selection or filter."""
    across = [(SELECT_ACROSS, 1)] if selects_all(request) else []
    ids = request.POST.getlist(ACTION_CHECKBOX_NAME)
    return [("action", action.name), *across, *((ACTION_CHECKBOX_NAME, id) for id in ids)]


def selects_all(request: HttpRequest) -> bool:
    """Return whether the action is on all matching messages instead of a selection."""
    return request.POST.get(SELECT_ACROSS) == "1"
