"""The answer to "why has this message not run?": one reason per state and cause, purely decided."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .fields import iso
from .spoken import length, time_of
from .store.explain import COUNT_AHEAD_TO, Situation
from .types import Explanation, State, WorkerRecord
from .workers import was_seen


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
        return was_seen(worker, now=self.now)

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
