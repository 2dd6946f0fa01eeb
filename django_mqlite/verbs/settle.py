"""Settle and renew leases."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import random
from typing import Any

from .. import signals
from ..arguments import checked_integer
from ..doorbell import ring_doorbell
from ..exceptions import ErrorDetails, Retry, describe_error, details_json, is_error
from ..guard import safe_repr
from ..signals import send_after_commit
from ..store import sqlite as store
from ..store.sqlite.settle import SettleResult
from ..timing import MAX_DURATION_MS, Duration, epoch_ms, moment
from ..transactions import after_commit, write_transaction
from ..types import Abandonment, Completion, Deferral, Lease, Outcome, Rejection, State
from .any_text import retry_with_any_text
from .async_twins import async_twin, has_async_twin
from .base import M, Verbs, get_model, lock_ms
from .references import naming_references


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A delivery and its outcome."""

    message: Any
    outcome: Outcome
    error: BaseException | str | None = None
    details: ErrorDetails | None = None
    """The error as text, computed outside a transaction, because `__str__` is foreign code."""

    @property
    def counts(self) -> bool:
        """False for a delivery that its handler asked not to count."""
        return not isinstance(self.outcome, Abandonment) or self.outcome.counts

    def __post_init__(self) -> None:
        if self.details is None and self.error is not None:
            object.__setattr__(self, "details", describe_error(self.error))


@dataclass(slots=True, kw_only=True)
class LeasedMessage:
    """A message of which the caller has only the lease, with the facts for its signals."""

    lease: Lease
    line: str | None = None
    message_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    delivery_count: int = 0
    locked_by: str | None = None
    locked_at: datetime | None = None
    finished_at: datetime | None = None
    state: str = State.LOCKED
    in_flight_limited: bool = False

    on_completed = None

    @property
    def id(self) -> int:
        return self.lease.id

    @property
    def queue(self) -> str:
        return self.lease.queue


def _leased_messages(connection: Any, leases: Sequence[Lease]) -> list[LeasedMessage]:
    """Return the messages of the leases; of a lease that was settled or lost, only the lease."""
    rows = store.settle.held(connection, leases)
    messages = []
    for lease in leases:
        message = LeasedMessage(lease=lease)
        if lease in rows:
            row = rows[lease]
            message.line, message.locked_by = row.line, row.locked_by
            message.in_flight_limited = bool(row.in_flight_limited)
            message.message_id, message.subject = row.message_id, row.subject
            message.content_type, message.delivery_count = row.content_type, row.delivery_count
            message.locked_at = moment(row.locked_at)
        messages.append(message)
    return messages


def settle(connection: Any, settlements: Sequence[Settlement], *, now: int) -> list[bool]:
    """Settle each delivery by its outcome; return for each whether its lease was still held.

    All completions are one statement. Nothing is written for a lost lease. Repeating a settle that
    succeeded returns True and sends no signal.
    """
    leases = [settlement.message.lease for settlement in settlements]
    completions = {
        lease: settlement
        for settlement, lease in zip(settlements, leases, strict=True)
        if lease is not None and isinstance(settlement.outcome, Completion)
    }
    completed = _complete(connection, completions, now=now) if completions else {}
    held = [
        lease in completed
        if isinstance(settlement.outcome, Completion)
        else lease is not None and _settle_one(connection, settlement, lease, now=now)
        for settlement, lease in zip(settlements, leases, strict=True)
    ]
    if any(_makes_room(settlement.message) for settlement in settlements):
        after_commit(connection.alias, partial(ring_doorbell, connection.alias))
    return held


def _makes_room(message: Any) -> bool:
    """Return whether another message may become claimable when the message is settled."""
    return message.line is not None or message.in_flight_limited


def _complete(
    connection: Any, settlements: Mapping[Lease, Settlement], *, now: int
) -> dict[Lease, SettleResult]:
    completions: dict[Lease, Any] = {lease: s.outcome for lease, s in settlements.items()}
    results = store.settle.complete(connection, completions, now=now)
    using = connection.alias
    has_listeners = signals.message_completed.has_listeners()
    for lease, result in results.items():
        if result.repeated:
            continue
        message = settlements[lease].message
        message.state = State.COMPLETED
        message.finished_at = moment(now)
        if has_listeners:
            send_after_commit(
                using,
                signals.message_completed,
                message,
                sender=_sender(message),
                worker=message.locked_by,
            )
        if message.on_completed is not None:
            after_commit(using, message.on_completed)
    return results


def _settle_one(connection: Any, settlement: Settlement, lease: Lease, *, now: int) -> bool:
    result = _settle_in_store(connection, settlement, lease, now=now)
    if result is None or result.repeated:
        return result is not None
    message = settlement.message
    message.state = result.state
    send = partial(
        send_after_commit,
        connection.alias,
        message=message,
        sender=_sender(message),
        worker=message.locked_by,
    )
    if result.state == State.DEFERRED:
        send(signal=signals.message_deferred)
    elif result.state == State.DEAD_LETTERED:
        send(
            signal=signals.message_dead_lettered,
            content_type=message.content_type,
            reason=result.dead_letter_reason,
            description=_description(settlement),
            exception=settlement.error if is_error(settlement.error) else None,
        )
    else:
        send(
            signal=signals.message_abandoned,
            visible_at=moment(result.visible_at),
            error=_description(settlement),
            requested=_is_requested(settlement.error),
        )
        after_commit(connection.alias, partial(ring_doorbell, connection.alias))
    return True


def _sender(message: Any) -> type[Any]:
    return get_model("Message") if isinstance(message, LeasedMessage) else type(message)


def _is_requested(error: object) -> bool:
    """Return whether the handler asked for the retry, instead of failing."""
    return error is None or issubclass(type(error), Retry)


def _settle_in_store(
    connection: Any, settlement: Settlement, lease: Lease, *, now: int
) -> SettleResult | None:
    error = _error_document(settlement, now)
    match settlement.outcome:
        case Abandonment(delay_ms=int(delay), counts=False):
            return store.settle.retry_uncounted(
                connection, lease, now=now, delay=delay, error=error
            )
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


def _error_document(settlement: Settlement, now: int) -> str | None:
    if settlement.details is None:
        return None
    message = settlement.message
    return details_json(
        settlement.details,
        delivery=message.delivery_count,
        worker=message.locked_by,
        started_at=epoch_ms(message.locked_at) if message.locked_at else 0,
        failed_at=now,
    )


def _description(settlement: Settlement) -> str:
    if isinstance(settlement.outcome, Rejection):
        return settlement.outcome.description
    return (settlement.details.short if settlement.details else "") or "no reason given"


class SettleVerbs(Verbs[M]):
    """Settle and renew leases."""

    @naming_references
    def settle(
        self, message: Any, outcome: Outcome, *, error: BaseException | str | None = None
    ) -> bool:
        """Settle the message's lease by `outcome`; return False and write nothing if it is lost."""
        settlement = Settlement(message=message, outcome=outcome, error=error)
        with restoring_states([settlement]), write_transaction(self.database) as (connection, now):
            return settle(connection, [settlement], now=now)[0]

    def settle_leases(self, leases: Sequence[Lease], outcome: Outcome) -> list[bool]:
        """Settle leases without their messages; return for each whether it was still held.

        Repeating the call within 30 minutes returns True again and changes nothing.
        """
        return self.settle_each([(lease, outcome, None) for lease in leases])

    @naming_references
    @retry_with_any_text
    def settle_each(self, deliveries: Sequence[tuple[Lease, Outcome, str | None]]) -> list[bool]:
        """Settle each lease by its own outcome, with an error to record; all in one transaction.

        Returns the same as settle_leases().
        """
        with write_transaction(self.database) as (connection, now):
            messages = _leased_messages(connection, [lease for lease, _, _ in deliveries])
            settlements = [
                Settlement(message=message, outcome=outcome, error=error)
                for message, (_, outcome, error) in zip(messages, deliveries, strict=True)
            ]
            return settle(connection, settlements, now=now)

    @has_async_twin
    @naming_references
    def complete_many(self, messages: Sequence[Any]) -> list[bool]:
        """Complete the messages in one statement; return for each whether its lease was still held.

        Repeating the call within 30 minutes returns True again and changes nothing. Raises
        ValueError for messages of another database.
        """
        self._check_messages(messages)
        settlements = [Settlement(message=message, outcome=Completion()) for message in messages]
        with restoring_states(settlements), write_transaction(self.database) as (connection, now):
            return settle(connection, settlements, now=now)

    acomplete_many = async_twin(complete_many)

    @has_async_twin
    def renew_many(
        self,
        messages: Sequence[Any],
        lock_duration: Duration | None = None,
        *,
        at_least_ms: int = 0,
    ) -> list[bool]:
        """Renew the leases in one statement; return for each whether it was still held.

        The new lease lasts `lock_duration` (timedelta or seconds) from now, by default the queue's,
        and is stored in `locked_until`. A lease is never shortened, and an expired one never
        renewed. Repeating the call renews again. Raises ValueError for messages of another
        database.
        """
        self._check_messages(messages)
        leases = [lease for message in messages if (lease := message.lease)]
        until = self.renew_leases(leases, lock_duration, at_least_ms=at_least_ms)
        for message in messages:
            if message.lease in until:
                message.locked_until = moment(until[message.lease])
        return [message.lease in until for message in messages]

    arenew_many = async_twin(renew_many)

    def set_progress(self, message: Any, fraction: float, text: str) -> bool:
        """Store the progress of a claimed message; return False if its lease is lost."""
        if message.lease is None:
            return False
        with write_transaction(self.database) as (connection, now):
            progress = {"fraction": fraction, "text": text, "updated_at": now}
            is_held = store.settle.set_progress(
                connection, message.lease, json.dumps(progress), now=now
            )
        if is_held:
            message.progress = progress
        return is_held

    def renew_leases(
        self,
        leases: Sequence[Lease],
        lock_duration: Duration | None = None,
        *,
        at_least_ms: int = 0,
    ) -> dict[Lease, int]:
        """Renew leases without their messages; return the deadlines of those still held."""
        lock_duration_ms = lock_ms(lock_duration)
        at_least_ms = checked_integer(
            at_least_ms, "at_least_ms", minimum=0, maximum=MAX_DURATION_MS
        )
        with write_transaction(self.database) as (connection, now):
            return store.settle.renew(
                connection,
                leases,
                now=now,
                lock_duration=lock_duration_ms,
                at_least=at_least_ms,
            )

    def _check_messages(self, messages: Any) -> None:
        if not isinstance(messages, Sequence) or not all(
            isinstance(message, self.model._meta.concrete_model or ()) for message in messages
        ):
            raise TypeError(
                f"messages must be a list of claimed messages, not {safe_repr(messages)}"
            )
        for message in messages:
            if message._state.db not in (None, self.database):
                raise ValueError(
                    f"{message} is in database {message._state.db!r}: use "
                    f"Message.objects.db_manager({message._state.db!r})"
                )


@contextmanager
def restoring_states(settlements: Sequence[Settlement]) -> Iterator[None]:
    """Restore the states of the instances if the transaction does not commit."""
    states = [(settlement.message, settlement.message.state) for settlement in settlements]
    try:
        yield
    except BaseException:
        for message, state in states:
            message.state = state
        raise
