"""Claims and settlements inside one open transaction: what the verbs and the worker share."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import random
from typing import TYPE_CHECKING, Any

from . import guard, signals
from .doorbell import ring
from .exceptions import QueueNotFound
from .failures import Described, described, is_error, remembered
from .fields import epoch_ms, moment
from .store import claim as claims
from .store import settle as settles
from .store.claim_attempt import remember_attempt, replay_attempt
from .store.queues import queue_names
from .store.rows import MessageRow
from .transactions import after_commit
from .types import Abandonment, Completion, Deferral, Lease, Outcome, Rejection, State

if TYPE_CHECKING:
    from .models import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A delivery and how it ended."""

    message: "Message"
    outcome: Outcome
    error: BaseException | str | None = None
    said: Described | None = None
    """What the error says: asked for here at the latest, before there is a transaction."""

    def __post_init__(self) -> None:
        if self.said is None and self.error is not None:
            object.__setattr__(self, "said", described(self.error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """How much to claim and for whom. `lock_ms` None means the queue's lock duration.

    `at_least_ms` is for a worker that could not renew a shorter lease in time.
    """

    limit: int = 1
    worker: str | None = None
    lock_ms: int | None = None
    at_least_ms: int = 0
    attempt_id: str | None = None


def claim_rows(connection: Any, queue: str, wanted: Claim, *, now: int) -> list[MessageRow]:
    """Take messages of the queue, or those the same attempt was given before.

    Raises QueueNotFound if there is no such queue.
    """
    if wanted.attempt_id is not None:
        replayed = replay_attempt(connection, queue, wanted.attempt_id, now=now)
        if replayed is not None:
            return replayed
    rows = claims.claim(
        connection,
        queue,
        now=now,
        limit=wanted.limit,
        secret=secrets.token_hex(16),
        worker=wanted.worker,
        lock_duration=wanted.lock_ms,
        at_least=wanted.at_least_ms,
    )
    if not rows and not claims.queue_exists(connection, queue):
        raise QueueNotFound(queue, queue_names(connection))
    if rows and wanted.attempt_id is not None:
        remember_attempt(connection, queue, wanted.attempt_id, rows, now=now)
    return rows


def settle(connection: Any, settlements: Sequence[Settlement], *, now: int) -> list[bool]:
    """Settle each as it ended, the completed ones in one statement; False where the lease is lost.

    What there is to tell is told after the commit. A repeat of a settle that was carried out before
    is True and tells nothing.
    """
    tell: list[Callable[[], object]] = []
    leases = [s.message.lease if isinstance(s.outcome, Completion) else None for s in settlements]
    completed = _complete(connection, settlements, leases, now=now, tell=tell)
    held = [
        lease in completed
        if isinstance(s.outcome, Completion)
        else _give_back(connection, s, now=now, tell=tell)
        for s, lease in zip(settlements, leases, strict=True)
    ]
    if any(s.message.line is not None for s in settlements):
        tell.append(partial(ring, connection.alias))  # the next in the line may go
    if tell:
        after_commit(connection.alias, partial(_tell, tell))
    return held


def _tell(events: Iterable[Callable[[], object]]) -> None:
    for event in events:
        guard.tell(event)


def _complete(
    connection: Any,
    settlements: Sequence[Settlement],
    leases: Sequence[Lease | None],
    *,
    now: int,
    tell: list[Callable[[], object]],
) -> frozenset[Lease]:
    wanted = {
        lease: (s.message, s.outcome)
        for s, lease in zip(settlements, leases, strict=True)
        if isinstance(s.outcome, Completion) and lease is not None
    }
    if not wanted:
        return frozenset()
    completions = {lease: completion for lease, (_, completion) in wanted.items()}
    completed = settles.complete(connection, completions, now=now)
    heard = signals.message_completed.has_listeners()
    for lease in completed.now:
        message, _ = wanted[lease]
        message.state = State.COMPLETED
        message.finished_at = moment(now)
        if heard:
            tell.append(partial(_send, signals.message_completed, connection, message))
        if message.on_completed is not None:
            tell.append(message.on_completed)
    return completed.now | completed.before


def _give_back(
    connection: Any, settlement: Settlement, *, now: int, tell: list[Callable[[], object]]
) -> bool:
    message = settlement.message
    lease = message.lease
    if lease is None:
        return False
    ending = _ending(connection, settlement, lease, now=now)
    if ending is None:
        return False
    if ending.replayed:
        return True
    message.state = ending.state
    if ending.state == State.DEFERRED:
        tell.append(partial(_send, signals.message_deferred, connection, message))
    elif ending.state == State.DEAD_LETTERED:
        facts: dict[str, object] = {
            "reason": ending.dead_letter_reason,
            "description": _described(settlement),
            "content_type": message.content_type,
            "exception": settlement.error if is_error(settlement.error) else None,
        }
        tell.append(partial(_send, signals.message_dead_lettered, connection, message, **facts))
    else:
        facts = {"visible_at": moment(ending.visible_at), "error": _described(settlement)}
        tell.append(partial(_send, signals.message_abandoned, connection, message, **facts))
        tell.append(partial(ring, connection.alias))
    return True


def _ending(
    connection: Any, settlement: Settlement, lease: Lease, *, now: int
) -> settles.Ending | None:
    error = _remembered(settlement, now)
    match settlement.outcome:
        case Abandonment(delay_ms=delay):
            return settles.abandon(
                connection, lease, now=now, delay=delay, chance=random(), error=error
            )
        case Rejection(reason=reason, description=description):
            return settles.reject(
                connection,
                lease,
                now=now,
                reason=reason,
                description=description,
                error=error,
            )
        case Deferral():
            return settles.defer(connection, lease, now=now)
        case Completion():
            raise AssertionError("completions are settled as a batch")


def _remembered(settlement: Settlement, now: int) -> str | None:
    if settlement.said is None:
        return None
    message = settlement.message
    return remembered(
        settlement.said,
        delivery=message.delivery_count,
        worker=message.locked_by,
        started_at=epoch_ms(message.locked_at) if message.locked_at else 0,
        failed_at=now,
    )


def _described(settlement: Settlement) -> str:
    if isinstance(settlement.outcome, Rejection):
        return settlement.outcome.description
    return (settlement.said.short if settlement.said else "") or "no reason given"


def _send(signal: Any, connection: Any, message: "Message", **facts: Any) -> None:
    signals.send(
        signal,
        type(message),
        queue=message.queue,
        message_id=message.pk,
        using=connection.alias,
        delivery_count=message.delivery_count,
        subject=message.subject,
        worker=message.locked_by,
        **facts,
    )
