"""Settle and renew leases, and exchange settled messages for new ones."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import random
from typing import Any

from .. import guard, signals
from ..doorbell import ring_doorbell
from ..exceptions import ErrorDetails, QueueNotFound, describe_error, is_error, remembered
from ..store import sqlite as store
from ..store.sqlite.base import MessageRow
from ..timing import Duration, epoch_ms, moment
from ..transactions import after_commit, write_transaction
from ..types import Abandonment, Completion, Deferral, Lease, Outcome, Rejection, State
from .base import M, Verbs, from_worker_rows, lock_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A delivery and how it ended."""

    message: Any
    outcome: Outcome
    error: BaseException | str | None = None
    said: ErrorDetails | None = None
    """What the error says: asked for here at the latest, before there is a transaction."""

    def __post_init__(self) -> None:
        if self.said is None and self.error is not None:
            object.__setattr__(self, "said", describe_error(self.error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The parameters of a claim. `lock_ms` None means the queue's lock duration.

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
        replayed = store.claim.replay_attempt(connection, queue, wanted.attempt_id, now=now)
        if replayed is not None:
            return replayed
    rows = store.claim.claim(
        connection,
        queue,
        now=now,
        limit=wanted.limit,
        secret=secrets.token_hex(16),
        worker=wanted.worker,
        lock_duration=wanted.lock_ms,
        at_least=wanted.at_least_ms,
    )
    if not rows and not store.claim.queue_exists(connection, queue):
        raise QueueNotFound(queue, store.queues.queue_names(connection))
    if rows and wanted.attempt_id is not None:
        store.claim.remember_attempt(connection, queue, wanted.attempt_id, rows, now=now)
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
        tell.append(partial(ring_doorbell, connection.alias))  # the next in the line may go
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
    completed = store.settle.complete(connection, completions, now=now)
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
        tell.append(partial(ring_doorbell, connection.alias))
    return True


def _ending(
    connection: Any, settlement: Settlement, lease: Lease, *, now: int
) -> store.settle.Ending | None:
    error = _remembered(settlement, now)
    match settlement.outcome:
        case Abandonment(delay_ms=delay):
            return store.settle.abandon(
                connection, lease, now=now, delay=delay, chance=random(), error=error
            )
        case Rejection(reason=reason, description=description):
            return store.settle.reject(
                connection,
                lease,
                now=now,
                reason=reason,
                description=description,
                error=error,
            )
        case Deferral():
            return store.settle.defer(connection, lease, now=now)
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


def _send(signal: Any, connection: Any, message: Any, **facts: Any) -> None:
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


UNREADABLE = Rejection(
    reason="Unreadable",
    description="properties is not a JSON object, or errors is not a JSON array",
)


def _is_damaged(message: Any) -> bool:
    return not (
        isinstance(message.properties, dict | None) and isinstance(message.errors, list | None)
    )


class SettleVerbs(Verbs[M]):
    """Renewing and settling."""

    def settle(
        self, message: Any, outcome: Outcome, *, error: BaseException | str | None = None
    ) -> bool:
        """End the delivery as `outcome` says; False if its lease is lost, nothing written."""
        settlement = Settlement(message=message, outcome=outcome, error=error)
        with _states_kept([settlement]), write_transaction(self.database) as (connection, now):
            return settle(connection, [settlement], now=now)[0]

    def complete_many(self, messages: Sequence[Any]) -> list[bool]:
        """Complete all of them in one statement; for each whether its lease still held.

        Within 30 minutes the same again is True again and changes nothing. Messages of another
        database are a ValueError.
        """
        self._of_this_database(messages)
        settlements = [Settlement(message=message, outcome=Completion()) for message in messages]
        with _states_kept(settlements), write_transaction(self.database) as (connection, now):
            return settle(connection, settlements, now=now)

    def exchange(
        self,
        settlements: Sequence[Settlement],
        queues: Iterable[str],
        *,
        limit: int,
        worker: str,
        at_least_ms: int = 0,
    ) -> tuple[list[bool], list[M]]:
        """Settle what has finished and claim up to `limit` more, in one transaction, one commit.

        The queues are asked in the order given, and a lease lasts `at_least_ms`. Returns for each
        settlement whether its lease still held, and the claimed messages.
        """
        rows: list[MessageRow] = []
        with _states_kept(settlements), write_transaction(self.database) as (connection, now):
            held = settle(connection, settlements, now=now)
            for queue in queues:
                if len(rows) < limit:
                    wanted = Claim(limit=limit - len(rows), worker=worker, at_least_ms=at_least_ms)
                    rows += claim_rows(connection, queue, wanted, now=now)
        return held, self._given(rows)

    def _given(self, rows: Sequence[MessageRow]) -> list[M]:
        """Return the claimed messages, and dead-letter those that another program has damaged.

        A handler must not be given text where it expects `properties`, and one such row must not
        keep the others from their handlers.
        """
        messages = from_worker_rows(self.model, self.database, rows)
        damaged = [message for message in messages if _is_damaged(message)]
        for message in damaged:
            self.settle(message, UNREADABLE)
        if damaged:  # what stands behind them may be claimed at once
            after_commit(self.database, partial(ring_doorbell, self.database))
        return [message for message in messages if message not in damaged] if damaged else messages

    def renew_many(
        self,
        messages: Sequence[Any],
        lock_duration: Duration | None = None,
        *,
        at_least_ms: int = 0,
    ) -> list[bool]:
        """Renew all their leases in one statement; for each whether it still held.

        `locked_until` of the renewed ones tells the new deadline. A lease is never shortened and an
        expired one never revived. Doing it again counts from then. Messages of another database are
        a ValueError.
        """
        self._of_this_database(messages)
        leases = [lease for message in messages if (lease := message.lease)]
        until = self.renew_leases(leases, lock_duration, at_least_ms=at_least_ms)
        for message in messages:
            if message.lease in until:
                message.locked_until = moment(until[message.lease])
        return [message.lease in until for message in messages]

    def _of_this_database(self, messages: Iterable[Any]) -> None:
        for message in messages:
            if message._state.db not in (None, self.database):
                raise ValueError(
                    f"{message} is of database {message._state.db!r}: use "
                    f"Message.objects.db_manager({message._state.db!r})"
                )

    def renew_leases(
        self,
        leases: Sequence[Lease],
        lock_duration: Duration | None = None,
        *,
        at_least_ms: int = 0,
    ) -> dict[Lease, int]:
        """The same for leases without their messages; the new deadline of each that still held."""
        lock_duration_ms = lock_ms(lock_duration)
        with write_transaction(self.database) as (connection, now):
            return store.settle.renew(
                connection,
                leases,
                now=now,
                lock_duration=lock_duration_ms,
                at_least=at_least_ms,
            )


@contextmanager
def _states_kept(settlements: Sequence[Settlement]) -> Iterator[None]:
    """Restore the states of the instances if the transaction does not commit."""
    before = [(settlement.message, settlement.message.state) for settlement in settlements]
    try:
        yield
    except BaseException:
        for message, state in before:
            message.state = state
        raise
