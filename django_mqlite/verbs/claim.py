"""Claim messages under a lease or delete them, also in the transaction that settles others."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import timing
from ..arguments import checked_ids, checked_integer, checked_text, optional_text
from ..conf import get_settings
from ..doorbell import ring_doorbell
from ..exceptions import QueueNotFound, TransactionRefused
from ..limits import NO_LIMIT, QueueLimits
from ..store import sqlite as store
from ..store.sqlite.base import MessageRow, NotUtf8, decode_text
from ..timing import Duration
from ..transactions import after_commit, in_callers_transaction, write_transaction
from ..types import Rejection
from .any_text import retry_with_any_text
from .async_twins import async_twin, has_async_twin
from .base import M, from_claimed_rows, from_worker_rows, lock_ms
from .references import naming_references
from .settle import Settlement, SettleVerbs, restoring_states, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The parameters of a claim. `lock_ms` None means the queue's lock duration.

    `at_least_ms` is the minimum for a worker that could not renew a shorter lease in time. After
    `max_bytes` of bodies, no more messages are claimed.
    """

    limit: int = 1
    worker: str | None = None
    lock_ms: int | None = None
    at_least_ms: int = 0
    attempt_id: str | None = None
    max_bytes: int | None = None


Take = Callable[..., list[MessageRow]]
"""A function that claims at most `limit` messages in one statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Claimed rows. `in_flight_limited`: they count towards their queue's max_in_flight.

    `room` is the number of messages that the limits of the queue leave after them.
    """

    rows: list[MessageRow]
    in_flight_limited: bool = False
    room: int = NO_LIMIT


def claim_within_limits(
    connection: Any, queue: str, claim: Callable[..., list[MessageRow]], *, limit: int, now: int
) -> Claimed:
    """Call `claim` for at most `limit` messages, or fewer if the limits of the queue leave less.

    Each message takes a token of the queue's rate. `claim` is one of the store's claims, which
    return nothing from a queue with limits on their own. Raises QueueNotFound.
    """
    rows = claim(limit=limit, within_limits=False)
    if rows:
        return Claimed(rows=rows)
    limits = store.limits.limits_of(connection, [queue], now=now).get(queue)
    if limits is None:
        raise QueueNotFound(queue, store.queues.queue_names(connection))
    if limits.room > 0 and limits.is_set:
        rows = claim(limit=min(limit, limits.room), within_limits=True)
    bucket = limits.bucket
    if bucket is not None and (rows or bucket.is_restarted):
        store.limits.write_bucket(connection, queue, bucket.take(len(rows)))
    return Claimed(
        rows=rows,
        in_flight_limited=limits.max_in_flight > 0,
        room=limits.room - len(rows),
    )


def claim_rows(connection: Any, queue: str, claim: Claim, *, now: int) -> Claimed:
    """Claim messages of the queue, or return those that the same attempt has claimed before.

    Raises QueueNotFound if there is no such queue.
    """
    claim_some = partial(
        store.claim.claim,
        connection,
        queue,
        now=now,
        secret=secrets.token_hex(16),
        worker=claim.worker,
        lock_duration=claim.lock_ms,
        at_least=claim.at_least_ms,
    )
    return _once_per_attempt(connection, queue, claim, claim_some, now=now)


def delete_rows(connection: Any, queue: str, claim: Claim, *, now: int) -> list[MessageRow]:
    """Claim and delete messages of the queue, or return those that the same attempt deleted.

    The next message of a line can be claimed when the one before it is deleted. With lines in the
    queue, messages are therefore taken one by one. Raises QueueNotFound.
    """
    claim_some = partial(store.claim.claim_and_delete, connection, queue, now=now)
    step = 1 if store.claim.HAS_LINES.value(connection, queue=queue) else claim.limit
    return _once_per_attempt(connection, queue, claim, claim_some, now=now, step=step).rows


def _once_per_attempt(
    connection: Any,
    queue: str,
    claim: Claim,
    claim_some: Take,
    *,
    now: int,
    step: int | None = None,
) -> Claimed:
    if claim.attempt_id is not None:
        replayed = store.claim.replay_attempt(connection, queue, claim.attempt_id, now=now)
        if replayed is not None:
            return Claimed(rows=replayed)
    take = partial(claim_within_limits, connection, queue, claim_some, now=now)
    claimed = _take_within(claim, take, step or claim.limit)
    if claimed.rows and claim.attempt_id is not None:
        store.claim.remember_attempt(connection, queue, claim.attempt_id, claimed.rows, now=now)
    return claimed


def _take_within(claim: Claim, take: Callable[..., Claimed], step: int) -> Claimed:
    """Claim until there are `limit` messages, `max_bytes` of bodies, or no more messages.

    A statement claims at most `step` messages, and no more than may fit into `max_bytes`. The room
    of the first one is that of all: a message that is deleted takes no lease from it.
    """
    rows: list[MessageRow] = []
    size = 0
    room = NO_LIMIT
    in_flight_limited = False
    while min(claim.limit - len(rows), room) > 0 and (
        claim.max_bytes is None or size <= claim.max_bytes
    ):
        limit = min(claim.limit - len(rows), step, room)
        if claim.max_bytes is not None:
            limit = min(limit, (claim.max_bytes - size) // get_settings().max_body_bytes + 1)
        batch = take(limit=limit)
        in_flight_limited = in_flight_limited or batch.in_flight_limited
        room = min(room - len(batch.rows), batch.room)
        rows += batch.rows
        size += sum(len(row.body) for row in batch.rows)
        if len(batch.rows) < limit:
            break
    return Claimed(rows=rows, in_flight_limited=in_flight_limited)


UNREADABLE = Rejection(
    reason="Unreadable",
    description="properties is not a JSON object, errors is not a JSON array, "
    "or a text value is not UTF-8",
)


def _is_unreadable(message: Any) -> bool:
    return not (
        isinstance(message.properties, dict | None) and isinstance(message.errors, list | None)
    )


def _is_not_utf8(message: Any) -> bool:
    return any(isinstance(value, NotUtf8) for value in vars(message).values())


class ClaimVerbs(SettleVerbs[M]):
    """Claim messages under a lease, or delete them as they are claimed."""

    @has_async_twin
    @retry_with_any_text
    def claim(
        self,
        queue: str,
        *,
        limit: int = 1,
        lock_duration: Duration | None = None,
        worker: str | None = None,
        attempt_id: str | None = None,
        max_bytes: int | None = None,
    ) -> list[M]:
        """Claim up to `limit` messages of `queue` under a lease, in claim order; [] for none.

        Each claim counts a delivery. The lease lasts `lock_duration` (timedelta or seconds), by
        default the queue's; settle each message before it ends, or renew it. `worker` is a name
        for display. With `max_bytes`, the message that brings the bodies over that size is the
        last one.

        Calling it twice claims different messages, unless `attempt_id` is given: for 30 minutes the
        same attempt gets the same messages and tokens again while their leases are held, and
        no delivery is counted. Use this if the response to a claim may be lost.

        Raises QueueNotFound, and TransactionRefused inside the caller's `atomic()`.
        """
        queue = checked_text(queue, "queue")
        claim = Claim(
            limit=checked_integer(limit, "limit"),
            worker=optional_text(worker, "worker"),
            lock_ms=lock_ms(lock_duration),
            attempt_id=optional_text(attempt_id, "attempt_id"),
            max_bytes=None if max_bytes is None else checked_integer(max_bytes, "max_bytes"),
        )
        while True:
            with self._claiming() as connection:
                claimed = claim_rows(connection, queue, claim, now=timing.now_ms())
            messages = self._readable(claimed)
            if messages or not claimed.rows:
                return messages

    aclaim = async_twin(claim)

    @has_async_twin
    @retry_with_any_text
    def claim_deferred(
        self,
        queue: str,
        ids: Iterable[int],
        *,
        lock_duration: Duration | None = None,
        worker: str | None = None,
    ) -> list[M]:
        """Claim those of the messages that are deferred in `queue`, under a lease.

        Each claim counts a delivery. Raises QueueNotFound, and TransactionRefused inside the
        caller's `atomic()`.
        """
        queue = checked_text(queue, "queue")
        worker = optional_text(worker, "worker")
        requested_ids = checked_ids(ids)
        lock_duration_ms = lock_ms(lock_duration)
        with self._claiming() as connection:
            now = timing.now_ms()
            claim = partial(
                store.claim.claim_deferred,
                connection,
                queue,
                requested_ids,
                now=now,
                secret=secrets.token_hex(16),
                worker=worker,
                lock_duration=lock_duration_ms,
            )
            claimed = claim_within_limits(
                connection, queue, claim, limit=len(requested_ids), now=now
            )
        return self._readable(claimed)

    aclaim_deferred = async_twin(claim_deferred)

    @has_async_twin
    @naming_references
    @retry_with_any_text
    def claim_and_delete(
        self,
        queue: str,
        *,
        limit: int = 1,
        attempt_id: str | None = None,
        max_bytes: int | None = None,
    ) -> list[M]:
        """Claim up to `limit` messages of `queue` and delete them: there is nothing to settle.

        Each message is delivered at most once: it is lost if the caller fails to handle it. In the
        caller's transaction, the messages are deleted when it commits. Several messages of a group
        can be returned, in their order. `max_bytes` is as in claim(). Raises QueueNotFound.

        If `attempt_id` is given, the messages are stored for 30 minutes, and the same attempt gets
        them again. Use this if the response may be lost.
        """
        queue = checked_text(queue, "queue")
        claim = Claim(
            limit=checked_integer(limit, "limit"),
            attempt_id=optional_text(attempt_id, "attempt_id"),
            max_bytes=None if max_bytes is None else checked_integer(max_bytes, "max_bytes"),
        )
        with write_transaction(self.database) as (connection, now):
            rows = delete_rows(connection, queue, claim, now=now)
        return from_claimed_rows(self.model, self.database, rows)

    aclaim_and_delete = async_twin(claim_and_delete)

    def claimable(self) -> set[str]:
        """Return the names of queues that have claimable messages, without the write lock.

        A queue that has reached a limit has none.
        """
        return {queue for queue, limits in self.claimable_limits().items() if limits.room > 0}

    def claimable_limits(self) -> dict[str, QueueLimits]:
        """Return the queues whose messages could be claimed but for their limits. Reads only."""
        return store.claim.claimable_queues(self.connection, now=timing.now_ms())

    @naming_references
    @retry_with_any_text
    def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        queues: Iterable[str],
        *,
        limit: int,
        worker: str,
        at_least_ms: int = 0,
    ) -> tuple[list[bool], list[M]]:
        """Settle deliveries and claim up to `limit` messages, in one transaction.

        Claims from the queues in the given order; a lease lasts at least `at_least_ms`. Returns for
        each settlement whether its lease was still held, and the claimed messages.
        """
        claims: list[Claimed] = []
        left = limit
        with restoring_states(settlements), write_transaction(self.database) as (connection, now):
            held = settle(connection, settlements, now=now)
            for queue in queues:
                if left > 0:
                    claim = Claim(limit=left, worker=worker, at_least_ms=at_least_ms)
                    claims.append(claim_rows(connection, queue, claim, now=now))
                    left -= len(claims[-1].rows)
        return held, self._readable(*claims)

    def _readable(self, *claims: Claimed) -> list[M]:
        """Return the claimed messages, and dead-letter those that another program has damaged.

        A handler must not receive text where it expects `properties`, and one damaged row must not
        block the other messages.
        """
        messages = [message for claimed in claims for message in self._instances(claimed)]
        any_text = self.connection.connection.text_factory is decode_text
        unreadable = [m for m in messages if _is_unreadable(m) or (any_text and _is_not_utf8(m))]
        if not unreadable:
            return messages
        for message in unreadable:
            self.settle(message, UNREADABLE)
        # The messages behind them can be claimed at once.
        after_commit(self.database, partial(ring_doorbell, self.database))
        return [message for message in messages if message not in unreadable]

    def _instances(self, claimed: Claimed) -> list[M]:
        messages: list[Any] = from_worker_rows(self.model, self.database, claimed.rows)
        if claimed.in_flight_limited:
            for message in messages:
                message.in_flight_limited = True
        return messages

    @contextmanager
    def _claiming(self) -> Iterator[Any]:
        if in_callers_transaction(self.database):
            raise TransactionRefused
        with write_transaction(self.database) as (connection, _):
            yield connection
