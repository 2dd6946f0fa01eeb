"""Why has this message not run? What the answer needs is read here; it is in reasons, or gone."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import timing
from ..formatting import length, time_of
from ..handlers import get_handlers, queues_of_kinds
from ..store import sqlite as store
from ..store.sqlite.explain import COUNT_AHEAD_TO, LastSettlement, Situation
from ..store.sqlite.settle import RECEIPT_LIFE_MS
from ..timing import iso
from ..types import Explanation, State, WorkerRecord, clamped
from .workers import is_live, registered_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What else decides when a message runs. `head` is why the head of its line waits."""

    now: int
    workers: tuple[WorkerRecord, ...] = ()
    head: Explanation | None = None
    has_handler: bool = True
    ahead: int = 0

    def behind(self, head: Explanation | None) -> "Surroundings":
        return replace(self, head=head)

    def without_worker(self, *, has_handler: bool) -> "Surroundings":
        return replace(self, has_handler=has_handler)

    def in_line(self, ahead: int) -> "Surroundings":
        return replace(self, ahead=ahead)

    def lives(self, worker: WorkerRecord) -> bool:
        """Whether it has written of late."""
        return is_live(worker, now=self.now)

    def workers_of(self, queue: str) -> list[WorkerRecord]:
        """The live ones that serve the queue."""
        return [each for each in self.workers if queue in each.queues and self.lives(each)]

    @property
    def reaper_runs(self) -> bool:
        return any(each.reaps and self.lives(each) for each in self.workers)


def reason_for(message: Situation, around: Surroundings) -> Explanation:
    """Why it has not run, or what became of it."""
    return REASONS[State(message.state)](message, around)


def _active(message: Situation, around: Surroundings) -> Explanation:
    if message.blocked:
        return _behind_head(message, around)
    if _is_expired(message, around):
        return _expired(message, around)
    if message.paused:
        return _because(message, "paused", _("its queue %(queue)s is paused"), queue=message.queue)
    if not around.workers_of(message.queue):
        return _unserved(message, around)
    return _in_line(message, around)


def _behind_head(message: Situation, around: Surroundings) -> Explanation:
    head = around.head
    if head is None:
        return _because(message, "claimable", _("has come to the head of its line just now"))
    line = (
        _("in group %(group)s") % {"group": message.group_id}
        if message.line
        else _("in queue %(queue)s, which is strict_fifo") % {"queue": message.queue}
    )
    return _because(
        message,
        "behind_head",
        _("waits behind #%(head)d, which is %(head_state)s, %(line)s; #%(head)d: %(head_text)s"),
        head=head.facts["id"],
        head_state=head.facts["state"],
        head_code=head.code,
        head_text=head.text,
        line=line,
        group_id=message.group_id,
    )


def _unserved(message: Situation, around: Surroundings) -> Explanation:
    if around.has_handler:
        text = _("no live worker serves queue %(queue)s: start `manage.py runworker`")
        return _because(message, "no_worker", text, queue=message.queue)
    text = _("no live worker serves queue %(queue)s, and no handler is registered for it")
    return _because(message, "no_handler", text, queue=message.queue)


def _in_line(message: Situation, around: Surroundings) -> Explanation:
    serving = around.workers_of(message.queue)
    more = "+" if around.ahead >= COUNT_AHEAD_TO else ""
    text = ngettext(
        "can be claimed, after %(before)s others; %(workers)d worker with %(slots)d slots serves "
        "its queue",
        "can be claimed, after %(before)s others; %(workers)d workers with %(slots)d slots serve "
        "its queue",
        len(serving),
    )
    return _because(
        message,
        "claimable",
        text,
        before=f"{around.ahead}{more}",
        ahead=around.ahead,
        workers=len(serving),
        slots=sum(each.slots for each in serving),
    )


def _locked(message: Situation, around: Surroundings) -> Explanation:
    if message.locked_until <= around.now:
        return _lease_expired(message, around)
    holder = next((each for each in around.workers if each.worker == message.locked_by), None)
    lives = None if holder is None else around.lives(holder)
    text = _("locked by %(holder)s until %(until)s, delivery %(count)d of %(bound)d")
    if holder is not None:
        text += _("; that worker was last seen %(seen)s ago")
    return _because(
        message,
        "leased",
        text,
        holder=message.locked_by or _("an unnamed worker"),
        until=time_of(message.locked_until, now=around.now),
        count=message.delivery_count,
        bound=message.bound,
        seen="" if holder is None else length(around.now - holder.seen_at),
        worker=message.locked_by,
        worker_lives=lives,
        locked_until=iso(message.locked_until),
    )


def _lease_expired(message: Situation, around: Surroundings) -> Explanation:
    text = _("its lease, of %(holder)s, ran out at %(until)s and waits for the reaper; %(reaper)s")
    return _because(
        message,
        "lease_expired",
        text,
        holder=message.locked_by or _("an unnamed worker"),
        until=time_of(message.locked_until, now=around.now),
        worker=message.locked_by,
        locked_until=iso(message.locked_until),
        **_reaper(around),
    )


def _deferred(message: Situation, around: Surroundings) -> Explanation:
    if _is_expired(message, around):
        return _expired(message, around)
    text = _("was set aside and waits until somebody claims it by its id, with claim_deferred()")
    return _because(message, "deferred", text)


def _scheduled(message: Situation, around: Surroundings) -> Explanation:
    if _is_expired(message, around):
        return _expired(message, around)
    if message.visible_at > around.now:
        return _not_due(message, around)
    if message.blocked:
        return _behind_head(message, around)
    text = _("has been due since %(due)s and waits for the reaper; %(reaper)s")
    return _because(message, "due", text, **_due(message, around), **_reaper(around))


def _not_due(message: Situation, around: Surroundings) -> Explanation:
    if message.delivery_count > 0:
        return _backing_off(message, around)
    if message.has_failed:
        text = _("was redriven at a rate, and its turn is at %(due)s")
        return _because(message, "redrive_paced", text, **_due(message, around))
    text = _("is not due before %(due)s")
    return _because(message, "not_due", text, **_due(message, around))


def _backing_off(message: Situation, around: Surroundings) -> Explanation:
    text = _("rests until %(due)s after delivery %(count)d of %(bound)d failed: %(error)s")
    return _because(
        message,
        "backing_off",
        text,
        count=message.delivery_count,
        bound=message.bound,
        error=_error(message) or _("no error was given"),
        **_due(message, around),
    )


def _dead_lettered(message: Situation, around: Surroundings) -> Explanation:
    return _because(
        message,
        "dead_lettered",
        _("is a dead letter since %(at)s: %(reason)s, %(description)s"),
        at=time_of(message.finished_at, now=around.now),
        reason=message.dead_letter_reason or "?",
        description=message.dead_letter_description or _("without a description"),
        finished_at=iso(message.finished_at),
    )


def _completed(message: Situation, around: Surroundings) -> Explanation:
    return _because(
        message,
        "completed",
        _("was completed at %(at)s and is kept until %(until)s"),
        at=time_of(message.finished_at, now=around.now),
        until=time_of(message.kept_until, now=around.now),
        finished_at=iso(message.finished_at),
        kept_until=iso(message.kept_until),
    )


REASONS: dict[State, Callable[[Situation, Surroundings], Explanation]] = {
    State.ACTIVE: _active,
    State.LOCKED: _locked,
    State.DEFERRED: _deferred,
    State.SCHEDULED: _scheduled,
    State.COMPLETED: _completed,
    State.DEAD_LETTERED: _dead_lettered,
}


def _is_expired(message: Situation, around: Surroundings) -> bool:
    return 0 < message.expires_at <= around.now


def _expired(message: Situation, around: Surroundings) -> Explanation:
    text = (
        _("its time to live ended at %(at)s, so it becomes a dead letter; %(reaper)s")
        if message.dead_letter_on_expire
        else _("its time to live ended at %(at)s, so it is discarded; %(reaper)s")
    )
    return _because(
        message,
        "expired",
        text,
        at=time_of(message.expires_at, now=around.now),
        expires_at=iso(message.expires_at),
        **_reaper(around),
    )


def _reaper(around: Surroundings) -> dict[str, Any]:
    runs = around.reaper_runs
    said = (
        _("one runs")
        if runs
        else _("none runs: start `manage.py runworker` or `manage.py runreaper`")
    )
    return {"reaper": said, "reaper_runs": runs}


def _due(message: Situation, around: Surroundings) -> dict[str, Any]:
    due = time_of(message.visible_at, now=around.now)
    return {"due": due, "visible_at": iso(message.visible_at)}


def _error(message: Situation) -> str:
    kind = (message.error_class or "").rpartition(".")[2]
    return ": ".join(filter(None, (kind, message.error_message)))


SPOKEN = frozenset(
    {"at", "before", "bound", "count", "due", "error", "head_text", "holder", "line", "reaper"}
    | {"seen", "until"}
)
"""What only the text says; the facts have it in a form for scripts."""


def _because(message: Situation, code: str, text: str, **facts: Any) -> Explanation:
    known = {
        "id": message.id,
        "queue": message.queue,
        "state": message.state,
        "delivery_count": message.delivery_count,
        "max_delivery_count": message.bound,
        "paused": bool(message.paused),
        "last_error": _error(message) or None,
    }
    of_script = {name: value for name, value in facts.items() if name not in SPOKEN}
    return Explanation(code=code, text=text % facts, facts=known | of_script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What can still be found of a message that is not there; times in epoch milliseconds."""

    now: int
    newest_id: int
    settlement: LastSettlement | None
    after: int | None
    before: int | None


def reason_for_gone(id: int, gone: Gone) -> Explanation:
    """What became of a message that is not there, as far as anything still tells."""
    facts: dict[str, Any] = {"id": id, "queue": None, "state": None}
    if not 0 < id <= gone.newest_id:
        text = _("there has never been a message #%(id)d; the last one is #%(newest)d")
        newest = {"id": id, "newest": gone.newest_id}
        return Explanation(
            code="never_enqueued", text=text % newest, facts=facts | {"newest_id": gone.newest_id}
        )
    if gone.settlement is not None and gone.settlement.verb == "complete":
        return _completed_and_gone(facts, gone.settlement, gone)
    text = _(
        "is gone: cancelled, purged, discarded, taken for good, or completed more than %(life)s "
        "ago; it was enqueued %(enqueued)s"
    )
    said = {"life": length(RECEIPT_LIFE_MS), "enqueued": _between(gone)}
    facts |= {"enqueued_after": iso(gone.after), "enqueued_before": iso(gone.before)}
    return Explanation(code="gone", text=text % said, facts=facts)


def _completed_and_gone(
    facts: dict[str, Any], settlement: LastSettlement, gone: Gone
) -> Explanation:
    at = settlement.expires_at - RECEIPT_LIFE_MS
    text = _("was completed at %(at)s, and queue %(queue)s keeps it no longer")
    said = {"at": time_of(at, now=gone.now), "queue": settlement.queue}
    facts |= {"queue": settlement.queue, "finished_at": iso(at)}
    return Explanation(code="completed_and_gone", text=text % said, facts=facts)


def _between(gone: Gone) -> str:
    """When it must have been enqueued: its neighbours by id are still there, or are not."""
    before = _("before %(time)s") % {"time": time_of(gone.before or gone.now, now=gone.now)}
    if gone.after is None:
        return before
    return _("after %(after)s and %(before)s") % {
        "after": time_of(gone.after, now=gone.now),
        "before": before,
    }


def explain(connection: Any, id: int) -> Explanation:
    """Why the message has not run, what holds it, or what became of it. Reads only."""
    message = store.explain.situation(connection, clamped(id))
    if message is None:
        return reason_for_gone(id, _gone(connection, clamped(id)))
    return reason_for(message, _surroundings(connection, message))


def _surroundings(connection: Any, message: store.explain.Situation) -> Surroundings:
    workers = tuple(registered_workers(connection.alias))
    around = Surroundings(now=timing.now_ms(), workers=workers)
    if message.blocked:
        return around.behind(_head(connection, message))
    if message.state != State.ACTIVE:
        return around
    if not around.workers_of(message.queue):
        return around.without_worker(has_handler=_has_handler(message.queue))
    return around.in_line(store.explain.ahead(connection, message))


def _has_handler(queue: str) -> bool:
    """Whether something handles it; so it is taken to be where the handlers cannot be imported.

    Why not is what the worker then says that is started. Who asks here still needs an answer.
    """
    try:
        return queue in {*get_handlers(), *queues_of_kinds()}
    except Exception:  # noqa: BLE001 - whatever modules of the project do when they are imported
        return True


def _head(connection: Any, message: store.explain.Situation) -> Explanation | None:
    """Why the head of its line waits; None if it has gone since the message was looked at."""
    head = store.explain.head_of_line(connection, message.queue, message.line or "")
    return None if head is None else explain(connection, head)


def _gone(connection: Any, id: int) -> Gone:
    before, after = store.explain.neighbours(connection, id)
    return Gone(
        now=timing.now_ms(),
        newest_id=store.explain.newest_id(connection),
        settlement=store.explain.last_settlement(connection, id),
        after=before,
        before=after,
    )
