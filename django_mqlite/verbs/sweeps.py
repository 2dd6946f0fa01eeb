"""The sweeps of the reaper; each call handles one bounded batch in one transaction."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import connections

from .. import timing
from ..conf import get_settings
from ..doorbell import ring_doorbell
from ..guard import get_logger
from ..signals import send_dead_letter_after_commit, send_released_after_commit
from ..store import sqlite as store
from ..transactions import after_commit, write_transaction
from ..types import Lease
from .any_text import retry_with_any_text
from .base import get_model
from .references import format_ids, referenced

logger = get_logger("django_mqlite")


@retry_with_any_text
def release_expired_leases(using: str, *, limit: int) -> int:
    """End at most `limit` expired leases; requeue or dead-letter their messages."""
    with write_transaction(using) as (connection, now):
        released = store.leases.release_expired_leases(connection, now=now, limit=limit)
        _send_released(using, released, now=now, reason="its lease expired")
    return len(released)


@retry_with_any_text
def release_worker(using: str, worker: str, *, reason: str, limit: int) -> int:
    """End at most `limit` leases of a dead worker before they expire."""
    with write_transaction(using) as (connection, now):
        released = store.leases.release_worker(
            connection, worker, reason=reason, now=now, limit=limit
        )
        _send_released(using, released, now=now, reason=f"worker {worker} died: {reason}")
    return len(released)


@retry_with_any_text
def interrupt(using: str, leases: Sequence[Lease], *, reason: str) -> set[int]:
    """End leases because their worker has to stop; return the ids of the released messages.

    The deliveries are not counted, see `store.leases.interrupt`.
    """
    if not leases:
        return set()
    with write_transaction(using) as (connection, now):
        released = store.leases.interrupt(connection, leases, reason=reason, now=now)
        _send_released(using, released, now=now, reason=f"interrupted: {reason}")
    return {message.id for message in released}


def _send_released(
    using: str, released: Sequence[store.leases.Released], *, now: int, reason: str
) -> None:
    if released:
        send_released_after_commit(
            using, released, sender=get_model("Message"), now=now, reason=reason
        )


def activate_due(using: str, *, limit: int) -> int:
    """Make at most `limit` due scheduled messages claimable."""
    with write_transaction(using) as (connection, now):
        count = store.sweeps.ACTIVATE_DUE.run(connection, now=now, limit=limit)
        if count:
            after_commit(using, partial(ring_doorbell, using))
    return count


@retry_with_any_text
def expire(using: str, *, limit: int) -> int:
    """Dead-letter or delete at most `limit` messages whose TTL has expired."""
    dead_letters, deletions = store.sweeps.find_ttl_expired(
        connections[using], now=timing.now_ms(), limit=limit
    )
    count = 0
    if dead_letters:
        with write_transaction(using) as (connection, _):
            count = _dead_letter_ttl_expired(connection, dead_letters)
    return count + _delete_skipping_referenced(
        using, deletions, _delete_ttl_expired, _dead_letter_ttl_expired
    )


def end_expired(using: str, queue: str, ids: Sequence[int]) -> None:
    """Dead-letter or delete these messages of `queue` now, because their time to live is over."""
    queues = get_model("Queue").objects.using(using).filter(name=queue)
    with write_transaction(using) as (connection, _):
        if queues.values_list("dead_letter_on_expire", flat=True).first():
            _dead_letter_ttl_expired(connection, ids)
        else:
            _delete_skipping_referenced(using, ids, _delete_ttl_expired, _dead_letter_ttl_expired)


def _dead_letter_ttl_expired(connection: Any, ids: Sequence[int]) -> int:
    using, model = connection.alias, get_model("Message")
    expired = store.sweeps.dead_letter_ttl_expired(connection, ids, now=timing.now_ms())
    for message in expired:
        send_dead_letter_after_commit(
            using, message, model, reason="TTLExpired", description="its time to live was over"
        )
    after_commit(using, partial(ring_doorbell, using))
    return len(expired)


def _delete_ttl_expired(connection: Any, ids: Sequence[int]) -> int:
    after_commit(connection.alias, partial(ring_doorbell, connection.alias))
    return store.sweeps.DELETE_TTL_EXPIRED.run(
        connection, ids=json.dumps(list(ids)), now=timing.now_ms()
    )


def prune_completed(using: str, *, limit: int) -> int:
    """Delete at most `limit` completed messages whose retention period has ended."""
    ids = store.retention.completed_to_prune(connections[using], now=timing.now_ms(), limit=limit)
    return _delete_skipping_referenced(
        using, ids, store.retention.prune_completed, _restart_retention
    )


def prune_dead_letters(using: str, *, limit: int) -> int:
    """Delete at most `limit` dead letters beyond their queue's maximum age, count or bytes.

    A limit of 0 means MQLITE['DLQ_MAX_AGE'], ['DLQ_MAX_COUNT'] or ['DLQ_MAX_BYTES'].
    """
    ids = _exceeding_limits(connections[using], limit=limit)
    return _delete_skipping_referenced(using, ids, store.dead_letters.purge, _restart_retention)


def _restart_retention(connection: Any, ids: Sequence[int]) -> int:
    for id in ids:
        store.retention.KEEP_LONGER.run(connection, id=id, now=timing.now_ms())
    return 0


Change = Callable[[Any, Sequence[int]], int]


def _delete_skipping_referenced(
    using: str, ids: Sequence[int], delete: Change, change_referenced: Change
) -> int:
    """Delete the messages, except those that a foreign key refers to; return their number.

    `change_referenced` is called with the ids of the others, so that the next sweep skips them.
    """
    if not ids:
        return 0
    with write_transaction(using) as (connection, _):
        kept = sorted(referenced(connection, ids))
        if kept:
            logger.warning(
                "messages not deleted because a foreign key refers to them: %s", format_ids(kept)
            )
            change_referenced(connection, kept)
        return delete(connection, [id for id in ids if id not in kept])


def _exceeding_limits(connection: Any, *, limit: int) -> list[int]:
    now = timing.now_ms()
    settings = get_settings()
    ids: list[int] = []
    for limits in store.retention.dead_letter_bounds(connection):
        bounds = store.retention.Bounds(
            queue=limits.queue,
            max_age_ms=limits.max_age_ms or settings.dlq_max_age_ms,
            max_count=limits.max_count or settings.dlq_max_count,
            max_bytes=limits.max_bytes or settings.dlq_max_bytes,
        )
        if len(ids) < limit:
            ids += store.retention.dead_letters_exceeding(
                connection, bounds, now=now, limit=limit - len(ids)
            )
    return ids


def prune_records(using: str, *, limit: int) -> int:
    """Delete at most `limit` each of expired receipts, attempts and deduplication keys."""
    if not store.retention.RECORDS_TO_PRUNE.value(connections[using], now=timing.now_ms()):
        return 0
    with write_transaction(using) as (connection, now):
        return max(
            store.settle.PRUNE_RECEIPTS.run(connection, now=now, limit=limit),
            store.claim.PRUNE_ATTEMPTS.run(connection, now=now, limit=limit),
            store.duplicates.PRUNE_KEYS.run(connection, now=now, limit=limit),
        )


def next_event_in(using: str) -> float | None:
    """Return the seconds until the next sweep, or None if nothing is scheduled. Reads only."""
    at = store.sweeps.NEXT_EVENT.value(connections[using])
    return None if at is None else max(0.0, (at - timing.now_ms()) / 1000)
