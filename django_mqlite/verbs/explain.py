"""Explain why a message has not run, what holds it, or how it ended.

explain() reads the message's status and its context; the other functions are pure.
"""

from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import timing
from ..arguments import checked_id
from ..formatting import format_duration, format_in_flight, format_rate, format_time, short_error
from ..handlers import get_handlers, queues_of_kinds
from ..limits import UNLIMITED, QueueLimits
from ..store import sqlite as store
from ..store.sqlite.explain import COUNT_AHEAD_TO, LastSettlement, MessageStatus
from ..store.sqlite.settle import RECEIPT_LIFE_MS
from ..timing import iso
from ..types import Explanation, State, WorkerRecord
from .workers import HeldLease, held_leases, is_live, registered_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainContext:
    """The other facts that decide when a message runs. `head` explains the head of its line."""

    now: int
    workers: tuple[WorkerRecord, ...]
    head: Explanation | None = None
    has_handler: bool = True
    ahead: int = 0
    held: tuple[HeldLease, ...] = ()
    """The live leases of the workers that serve the message's queue."""
    limits: QueueLimits = UNLIMITED
    """The limits of the message's queue; counted for active messages only."""

    def serving(self, queue: str) -> list[WorkerRecord]:
        """Return the live workers that serve the queue."""
        return [
            worker for worker in self.workers if queue in worker.queues and self.is_live(worker)
        ]

    def is_live(self, worker: WorkerRecord) -> bool:
        return is_live(worker, now=self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedMessage:
    """The known facts about a message that no longer exists; times are in epoch milliseconds."""

    id: int
    newest_id: int
    settlement: LastSettlement | None
    enqueued_after: int | None
    enqueued_before: int | None


def explain(connection: Any, id: int, *, quote_errors: bool = True) -> Explanation:
    """Explain why the message has not run, what holds it, or how it ended. Reads only.

    `id` may be any number; the explanation names it unchanged. With `quote_errors` False, it names
    the classes of errors only.
    """
    stored_id = checked_id(id)
    message = store.explain.message_status(connection, stored_id)
    if message is not None:
        if not quote_errors:
            message = _without_error_texts(message)
        return explain_status(message, _read_context(connection, message, quote_errors))
    before, after = store.explain.neighbours(connection, stored_id)
    deleted = DeletedMessage(
        id=int(id),
        newest_id=store.explain.newest_id(connection),
        settlement=store.explain.last_settlement(connection, stored_id),
        enqueued_after=before,
        enqueued_before=after,
    )
    return explain_deleted(deleted, now=timing.now_ms())


def _without_error_texts(message: MessageStatus) -> MessageStatus:
    description = message.dead_letter_description and _("with a hidden description")
    return message._replace(error_message=None, dead_letter_description=description)


def _read_context(
    connection: Any, message: MessageStatus, quote_errors: bool = True
) -> ExplainContext:
    workers = tuple(registered_workers(connection.alias))
    context = ExplainContext(now=timing.now_ms(), workers=workers)
    if message.blocked:
        return replace(context, head=_explain_head(connection, message, quote_errors))
    if message.state != State.ACTIVE:
        return context
    limits = store.limits.limits_of(connection, [message.queue], now=context.now)
    context = replace(
        context,
        ahead=store.explain.count_ahead(connection, message),
        limits=limits.get(message.queue, UNLIMITED),
    )
    serving = [worker.worker for worker in context.serving(message.queue)]
    if not serving:
        return replace(context, has_handler=_has_handler(message.queue))
    return replace(
        context,
        held=tuple(held_leases(connection.alias, serving)),
    )


def _explain_head(
    connection: Any, message: MessageStatus, quote_errors: bool
) -> Explanation | None:
    """Explain the head of the message's line; None if the head has just been deleted."""
    head = store.explain.HEAD_OF_LINE.value(
        connection, queue=message.queue, line=message.line or ""
    )
    return None if head is None else explain(connection, head, quote_errors=quote_errors)


def _has_handler(queue: str) -> bool:
    """Return whether a handler serves the queue, or True if the handlers cannot be imported.

    The worker reports import errors when it starts; an explanation is still possible.
    """
    try:
        return queue in {*get_handlers(), *queues_of_kinds()}
    except Exception:  # noqa: BLE001 - the project's modules may raise anything
        return True


def explain_status(message: MessageStatus, context: ExplainContext) -> Explanation:
    """Return the first reason that applies to the message."""
    match State(message.state):
        case State.LOCKED:
            return _locked(message, context)
        case State.COMPLETED:
            return _completed(message, context.now)
        case State.DEAD_LETTERED:
            return _dead_lettered(message, context.now)
        case State.ACTIVE:
            return _active(message, context)
    if _is_expired(message, context):
        return _expired(message, context)
    if message.state == State.DEFERRED:
        text = _("was deferred, and waits until it is activated or claimed with claim_deferred()")
        return _explanation(message, "deferred", text)
    return _scheduled(message, context)


def _active(message: MessageStatus, context: ExplainContext) -> Explanation:
    if message.blocked:
        return _behind_head(message, context)
    if _is_expired(message, context):
        return _expired(message, context)
    if message.paused:
        return _explanation(message, "paused", _("its queue %(queue)s is paused"))
    if context.limits.room == 0:
        return _at_limit(message, context)
    if not context.serving(message.queue):
        return _unserved(message, context)
    return _claimable(message, context)


def _at_limit(message: MessageStatus, context: ExplainContext) -> Explanation:
    limits, bucket = context.limits, context.limits.bucket
    workers = len(context.serving(message.queue))
    if bucket is None or limits.free_leases == 0:
        code = "max_in_flight"
        limit = format_in_flight(limits)
    else:
        code = "rate"
        limit = format_rate(bucket, now=context.now)
    text = _("waits for the limit of queue %(queue)s: %(limit)s")
    if context.ahead:
        text += ngettext(
            "; %(before)s other message comes first",
            "; %(before)s other messages come first",
            context.ahead,
        )
    if not workers:
        text += _("; no live worker serves the queue")
    return _explanation(
        message,
        code,
        text,
        {"limit": limit, "before": _ahead(context)},
        **limits.facts,
        ahead=context.ahead,
        workers=workers,
    )


def _ahead(context: ExplainContext) -> str:
    """Return the number of messages that come first, with a plus sign if there are more."""
    return f"{context.ahead}{'+' if context.ahead >= COUNT_AHEAD_TO else ''}"


def _scheduled(message: MessageStatus, context: ExplainContext) -> Explanation:
    if message.visible_at > context.now:
        return _not_due(message, context.now)
    if message.blocked:
        return _behind_head(message, context)
    return _explanation(
        message,
        "due",
        _("has been due since %(due)s and waits for the reaper; %(reaper)s"),
        {"due": format_time(message.visible_at, now=context.now), **reaper_text(context)},
        visible_at=iso(message.visible_at),
        reaper_runs=reaper_runs(context),
    )


def _is_expired(message: MessageStatus, context: ExplainContext) -> bool:
    return 0 < message.expires_at <= context.now


def _behind_head(message: MessageStatus, context: ExplainContext) -> Explanation:
    head = context.head
    if head is None:
        return _explanation(message, "claimable", _("has just become the head of its line"))
    line = (
        _("in group %(group)s") % {"group": message.group_id}
        if message.line
        else _("in queue %(queue)s, which is strict_fifo") % {"queue": message.queue}
    )
    return _explanation(
        message,
        "behind_head",
        _("waits behind #%(head)d, which is %(head_state)s, %(line)s; #%(head)d: %(head_text)s"),
        {"head_text": head.text, "line": line},
        head=head.facts["id"],
        head_state=head.facts["state"],
        head_code=head.code,
        group_id=message.group_id,
    )


def _unserved(message: MessageStatus, context: ExplainContext) -> Explanation:
    if context.has_handler:
        text = _("no live worker serves queue %(queue)s: start `manage.py runworker`")
        return _explanation(message, "no_worker", text)
    text = _("no live worker serves queue %(queue)s, and no handler is registered for it")
    return _explanation(message, "no_handler", text)


def _claimable(message: MessageStatus, context: ExplainContext) -> Explanation:
    serving = context.serving(message.queue)
    slots = sum(worker.slots for worker in serving)
    if 0 < slots <= len(context.held):
        return _waiting_for_slot(message, context, slots)
    text = ngettext(
        "can be claimed after %(before)s other messages; %(workers)d worker with %(slots)d slots "
        "serves its queue",
        "can be claimed after %(before)s other messages; %(workers)d workers with %(slots)d slots "
        "serve its queue",
        len(serving),
    )
    return _explanation(
        message,
        "claimable",
        text,
        {"before": _ahead(context)},
        ahead=context.ahead,
        workers=len(serving),
        slots=slots,
    )


def _waiting_for_slot(message: MessageStatus, context: ExplainContext, slots: int) -> Explanation:
    workers = len(context.serving(message.queue))
    longest = max(context.held, key=lambda held: held.ran_ms)
    text = ngettext(
        "waits for a free slot: all %(slots)d slots of the %(workers)d worker that serves its "
        "queue are busy, the longest with #%(longest)d for %(duration)s",
        "waits for a free slot: all %(slots)d slots of the %(workers)d workers that serve its "
        "queue are busy, the longest with #%(longest)d for %(duration)s",
        workers,
    )
    return _explanation(
        message,
        "no_free_slot",
        text,
        {"duration": format_duration(longest.ran_ms)},
        ahead=context.ahead,
        workers=workers,
        slots=slots,
        longest=longest.lease.id,
    )


def _locked(message: MessageStatus, context: ExplainContext) -> Explanation:
    now = context.now
    words: dict[str, Any] = {
        "holder": message.locked_by or _("an unnamed worker"),
        "until": format_time(message.locked_until, now=now),
    }
    facts = {"worker": message.locked_by, "locked_until": iso(message.locked_until)}
    if message.locked_until <= now:
        text = _(
            "its lease, held by %(holder)s, expired at %(until)s and waits for the reaper; "
            "%(reaper)s"
        )
        words |= reaper_text(context)
        runs = reaper_runs(context)
        return _explanation(message, "lease_expired", text, words, **facts, reaper_runs=runs)
    text = _(
        "locked by %(holder)s until %(until)s, delivery %(delivery_count)d of "
        "%(max_delivery_count)d"
    )
    workers = {worker.worker: worker for worker in context.workers}
    holder = workers.get(message.locked_by or "")
    if holder is not None:
        text += _("; that worker was last seen %(seen)s ago")
        words["seen"] = format_duration(now - holder.seen_at)
    holder_is_live = None if holder is None else context.is_live(holder)
    return _explanation(message, "leased", text, words, **facts, worker_lives=holder_is_live)


def _not_due(message: MessageStatus, now: int) -> Explanation:
    words = {"due": format_time(message.visible_at, now=now)}
    if message.delivery_count > 0:
        code = "backing_off"
        text = _(
            "is retried at %(due)s: delivery %(delivery_count)d of %(max_delivery_count)d failed "
            "with %(error)s"
        )
        words["error"] = short_error(message.error_class, message.error_message) or _(
            "no recorded error"
        )
    elif message.uncounted_retries > 0:
        code = "snoozed"
        text = _("was put off by its handler without counting the delivery, and is due at %(due)s")
    elif message.has_failed:
        code, text = "redrive_paced", _("was redriven at a limited rate and is due at %(due)s")
    else:
        code, text = "not_due", _("is not due before %(due)s")
    return _explanation(message, code, text, words, visible_at=iso(message.visible_at))


def _dead_lettered(message: MessageStatus, now: int) -> Explanation:
    return _explanation(
        message,
        "dead_lettered",
        _("became a dead letter at %(at)s: %(reason)s, %(description)s"),
        {"at": format_time(message.finished_at, now=now)},
        reason=message.dead_letter_reason or "?",
        description=message.dead_letter_description or _("without a description"),
        finished_at=iso(message.finished_at),
    )


def _completed(message: MessageStatus, now: int) -> Explanation:
    return _explanation(
        message,
        "completed",
        _("was completed at %(at)s and is kept until %(until)s"),
        {
            "at": format_time(message.finished_at, now=now),
            "until": format_time(message.kept_until, now=now),
        },
        finished_at=iso(message.finished_at),
        kept_until=iso(message.kept_until),
    )


def _expired(message: MessageStatus, context: ExplainContext) -> Explanation:
    text = (
        _("its time to live ended at %(at)s, so it becomes a dead letter; %(reaper)s")
        if message.dead_letter_on_expire
        else _("its time to live ended at %(at)s, so it is deleted; %(reaper)s")
    )
    return _explanation(
        message,
        "expired",
        text,
        {"at": format_time(message.expires_at, now=context.now), **reaper_text(context)},
        expires_at=iso(message.expires_at),
        reaper_runs=reaper_runs(context),
    )


def reaper_runs(context: ExplainContext) -> bool:
    return any(worker.reaps and context.is_live(worker) for worker in context.workers)


def reaper_text(context: ExplainContext) -> dict[str, Any]:
    if reaper_runs(context):
        return {"reaper": _("a reaper is running")}
    return {
        "reaper": _("no reaper is running: start `manage.py runworker` or `manage.py runreaper`")
    }


def _explanation(
    message: MessageStatus,
    code: str,
    text: str,
    words: dict[str, Any] | None = None,
    **facts: Any,
) -> Explanation:
    """Format the text with `words`, which are localized, and the facts, which scripts can read."""
    facts = {
        "id": message.id,
        "queue": message.queue,
        "state": message.state,
        "delivery_count": message.delivery_count,
        "max_delivery_count": message.max_delivery_count,
        "paused": bool(message.paused),
        "last_error": short_error(message.error_class, message.error_message),
        **facts,
    }
    return Explanation(code=code, text=text % (facts | (words or {})), facts=facts)


def explain_deleted(deleted: DeletedMessage, *, now: int) -> Explanation:
    """Explain how a message that no longer exists ended, as far as it is known."""
    facts: dict[str, Any] = {"id": deleted.id, "queue": None, "state": None}
    words: dict[str, Any] = {}
    settlement = deleted.settlement
    if not 0 < deleted.id <= deleted.newest_id:
        code = "never_enqueued"
        text = _("there has never been a message #%(number)s; the last one is #%(newest_id)d")
        facts |= {"newest_id": deleted.newest_id}
        words = {"number": _printable(deleted.id)}
    elif settlement is not None and settlement.verb == "complete":
        code = "completed_and_gone"
        text = _("was completed at %(at)s, and queue %(queue)s does not keep completed messages")
        finished_at = settlement.expires_at - RECEIPT_LIFE_MS
        facts |= {"queue": settlement.queue, "finished_at": iso(finished_at)}
        words = {"at": format_time(finished_at, now=now)}
    else:
        code = "gone"
        text = _(
            "was deleted: cancelled, purged, expired, claimed with claim_and_delete(), or "
            "completed more than %(life)s ago; it was enqueued %(enqueued)s"
        )
        facts |= {
            "enqueued_after": iso(deleted.enqueued_after),
            "enqueued_before": iso(deleted.enqueued_before),
        }
        words = {"life": format_duration(RECEIPT_LIFE_MS), "enqueued": _enqueued(deleted, now)}
    return Explanation(code=code, text=text % (facts | words), facts=facts)


def _printable(id: int) -> str:
    """Return the id as text, in hexadecimal if it is too long for Python to print in decimal."""
    try:
        return str(id)
    except ValueError:
        return hex(id)


def _enqueued(deleted: DeletedMessage, now: int) -> str:
    """Return the time span between the messages with the nearest ids."""
    latest = format_time(deleted.enqueued_before or now, now=now)
    before = _("before %(time)s") % {"time": latest}
    if deleted.enqueued_after is None:
        return before
    after = format_time(deleted.enqueued_after, now=now)
    return _("after %(after)s and %(before)s") % {"after": after, "before": before}
