"""The sweeps of the reaper; each call handles one bounded batch in one transaction."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import connections

from .. import timing
from ..conf import get_settings
from ..doorbell import ring_doorbell
from ..guard import get_logger
from ..signals import tell_expired, tell_released
from ..store import sqlite as store
from ..transactions import after_commit, write_transaction
from ..types import Lease
from .base import get_model
from .dead_letters import format_ids, referenced

logger = get_logger("django_mqlite")


def release_expired(using: str, *, limit: int) -> int:
    """End at most `limit` leases that ran out: back to work, at the bound to the dead letters."""
    with write_transaction(using) as (connection, now):
        released = store.release.release_expired(connection, now=now, limit=limit)
        if released:
            tell = partial(
                tell_released, get_model("Message"), using, released, now, "its lease ran out"
            )
            after_commit(using, tell)
    return len(released)


def release_worker(using: str, worker: str, *, reason: str, limit: int) -> int:
    """End at most `limit` leases of a worker that is gone, whatever is left of them."""
    with write_transaction(using) as (connection, now):
        released = store.release.release_worker(
            connection, worker, reason=reason, now=now, limit=limit
        )
        if released:
            tell = partial(
                tell_released,
                get_model("Message"),
                using,
                released,
                now,
                f"worker {worker} died: {reason}",
            )
            after_commit(using, tell)
    return len(released)


def interrupt(using: str, leases: Sequence[Lease], *, reason: str) -> set[int]:
    """End these leases because their worker has to stop; the ids of the messages given back.

    The deliveries are not counted, see `store.release.interrupt`.
    """
    if not leases:
        return set()
    with write_transaction(using) as (connection, now):
        released = store.release.interrupt(connection, leases, reason=reason, now=now)
        tell = partial(
            tell_released, get_model("Message"), using, released, now, f"interrupted: {reason}"
        )
        after_commit(using, tell)
    return {message.message_id for message in released}


def activate_due(using: str, *, limit: int) -> int:
    """Make at most `limit` scheduled messages claimable whose time has come."""
    with write_transaction(using) as (connection, now):
        count = store.release.activate_due(connection, now=now, limit=limit)
        if count:
            after_commit(using, partial(ring_doorbell, using))
    return count


def expire(using: str, *, limit: int) -> int:
    """End at most `limit` messages whose time to live is over: dead letters, or gone."""
    bury, discard = store.release.expired(connections[using], now=timing.now_ms(), limit=limit)
    buried = 0
    if bury:
        with write_transaction(using) as (connection, _):
            buried = _bury(connection, bury)
    return buried + _sparing(using, discard, _discard, _bury)


def _bury(connection: Any, ids: Sequence[int]) -> int:
    buried = store.release.bury_expired(connection, ids, now=timing.now_ms())
    using = connection.alias
    after_commit(using, partial(tell_expired, get_model("Message"), using, buried))
    return len(buried)


def _discard(connection: Any, ids: Sequence[int]) -> int:
    after_commit(connection.alias, partial(ring_doorbell, connection.alias))
    return store.release.discard_expired(connection, ids, now=timing.now_ms())


def prune_completed(using: str, *, limit: int) -> int:
    """Delete at most `limit` completed messages that their queue has kept long enough."""
    ids = store.retention.completed_to_prune(connections[using], now=timing.now_ms(), limit=limit)
    return _sparing(using, ids, store.retention.prune_completed, _keep_longer)


def prune_dead_letters(using: str, *, limit: int) -> int:
    """Delete at most `limit` dead letters beyond their queue's age, count or bytes, oldest first.

    A queue's 0 inherits MQLITE['DLQ_MAX_AGE'], ['DLQ_MAX_COUNT'], ['DLQ_MAX_BYTES'].
    """
    doomed = _doomed(connections[using], limit=limit)
    return _sparing(using, doomed, store.dead_letters.purge, _keep_longer)


def _keep_longer(connection: Any, ids: Sequence[int]) -> int:
    for id in ids:
        store.retention.KEEP_LONGER.run(connection, id=id, now=timing.now_ms())
    return 0


Act = Callable[[Any, Sequence[int]], int]


def _sparing(using: str, ids: Sequence[int], act: Act, spare: Act) -> int:
    """Do `act` to these messages, `spare` those that a foreign key refers to; how many it did.

    One that must stay for the project's sake must neither keep the rest nor come up again at once.
    """
    if not ids:
        return 0
    with write_transaction(using) as (connection, _):
        kept = sorted(referenced(connection, ids))
        if kept:
            logger.warning("a foreign key refers to messages that stay: %s", format_ids(kept))
            spare(connection, kept)
        return act(connection, [id for id in ids if id not in kept])


def _doomed(connection: Any, *, limit: int) -> list[int]:
    now = timing.now_ms()
    doomed: list[int] = []
    for bounds in store.retention.dead_letter_bounds(connection):
        if len(doomed) < limit:
            doomed += _beyond(connection, bounds, now=now, limit=limit - len(doomed))
    return doomed


def _beyond(connection: Any, own: store.retention.Bounds, *, now: int, limit: int) -> list[int]:
    settings = get_settings()
    bounds = store.retention.Bounds(
        queue=own.queue,
        max_age_ms=own.max_age_ms or settings.dlq_max_age_ms,
        max_count=own.max_count or settings.dlq_max_count,
        max_bytes=own.max_bytes or settings.dlq_max_bytes,
    )
    return store.retention.dead_letters_exceeding(connection, bounds, now=now, limit=limit)


def forget(using: str, *, limit: int) -> int:
    """Delete at most `limit` each of receipts, attempts and deduplication keys that are over."""
    if not store.retention.RECORDS_TO_PRUNE.value(connections[using], now=timing.now_ms()):
        return 0
    with write_transaction(using) as (connection, now):
        return max(
            store.settle.prune_receipts(connection, now=now, limit=limit),
            store.claim.prune_attempts(connection, now=now, limit=limit),
            store.enqueue.prune_keys(connection, now=now, limit=limit),
        )


def next_event_in(using: str) -> float | None:
    """Seconds until a sweep has something to do, 0 if it has now, None if nothing is to come.

    A read: it takes no write lock.
    """
    at = store.release.next_event(connections[using])
    return None if at is None else max(0.0, (at - timing.now_ms()) / 1000)
