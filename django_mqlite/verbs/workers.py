"""The register of live workers, and the leases that they hold."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from django.db import connections

from .. import timing
from ..message import stored_timeout_ms
from ..store import sqlite as store
from ..transactions import write_transaction
from ..types import Lease, Tallies, WorkerRecord
from .any_text import retry_with_any_text
from .tallies import checked_tallies, merge_tallies, of_queues

LIVE_WITHIN_MS = 60_000
"""A worker updates its record every 15 s, so a worker that is not live missed four updates."""


def is_live(record: WorkerRecord, *, now: int) -> bool:
    """Return whether the worker has updated its record recently.

    A record from the future, left by a clock that was set back, does not count either.
    """
    return abs(now - record.seen_at) <= LIVE_WITHIN_MS


def live_workers(using: str) -> list[WorkerRecord]:
    """Return the registered workers that have updated their records recently."""
    now = timing.now_ms()
    return [worker for worker in registered_workers(using) if is_live(worker, now=now)]


def registered_workers(using: str) -> list[WorkerRecord]:
    """Return every worker on the register, including those whose record is out of date."""
    rows = store.workers.WORKER_RECORDS.all(connections[using])
    return [record for row in rows if (record := _parse_record(*row)) is not None]


FIELD_TYPES: dict[str, Any] = {
    **dict.fromkeys(("host", "boot_id"), str),
    **dict.fromkeys(("pid_namespace", "pid", "slots", "in_flight", "started_at", "reaps"), int),
    "process_started_at": int | float,
}
RECORD_FIELDS = {field.name for field in fields(WorkerRecord)} - {"worker", "seen_at"}
"""The fields of a record that are stored as JSON; the others are columns."""


def _parse_record(worker: str, text: str, seen_at: int) -> WorkerRecord | None:
    """Return the record, without fields that this release does not know; None if it is damaged.

    Workers of two releases run side by side during a deployment.
    """
    known = {name: value for name, value in _parse(text).items() if name in RECORD_FIELDS}
    try:
        known["queues"] = tuple(known["queues"])
        record = WorkerRecord(worker=worker, seen_at=seen_at, **known)
    except (KeyError, TypeError):
        return None
    return record if _has_valid_types(record) else None


def _has_valid_types(record: WorkerRecord) -> bool:
    return all(isinstance(queue, str) for queue in record.queues) and all(
        isinstance(getattr(record, name), kind) for name, kind in FIELD_TYPES.items()
    )


def _parse(text: str | None) -> dict[str, Any]:
    """Return the JSON object, or an empty one if another program has written something else."""
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def register(using: str, record: WorkerRecord, deliveries: Tallies | None = None) -> None:
    """Write the record with the current time, and the deliveries that the worker has counted.

    This is a write transaction, so call it rarely. The counts have their own row, because the
    record is read often, and they are long.
    """
    values = {name: value for name, value in asdict(record).items() if name in RECORD_FIELDS}
    with write_transaction(using) as (connection, now):
        store.workers.RECORD_WORKER.run(
            connection, worker=record.worker, record=json.dumps(values), now=now
        )
        if deliveries:
            store.workers.RECORD_DELIVERIES.run(
                connection, worker=record.worker, tallies=json.dumps(deliveries), now=now
            )


@retry_with_any_text
def unregister(using: str, worker: str) -> None:
    """Remove the worker from the register, and keep the deliveries that it has counted.

    Those of queues that have been deleted are not kept.
    """
    with write_transaction(using) as (connection, now):
        store.workers.DELETE_WORKER.run(connection, worker=worker)
        text = store.workers.DELETE_DELIVERIES.value(connection, worker=worker)
        if tallies := checked_tallies(_parse(text)):
            tallies = merge_tallies([_unregistered_tallies(connection), tallies], now=now)
            tallies = of_queues(tallies, store.queues.queue_names(connection))
            store.workers.RECORD_UNREGISTERED_TALLIES.run(
                connection, tallies=json.dumps(tallies), now=now
            )


def counted_deliveries(using: str) -> Tallies:
    """Return the deliveries of all workers, including those that have unregistered. Reads only.

    One statement reads them, so a worker that unregisters meanwhile is neither missed nor counted
    twice, and totals never decrease.
    """
    texts = [text for (text,) in store.workers.DELIVERIES.all(connections[using])]
    tallies = [checked_tallies(_parse(text)) for text in texts]
    return merge_tallies(tallies, now=timing.now_ms())


def _unregistered_tallies(connection: Any) -> Tallies:
    return checked_tallies(_parse(store.workers.UNREGISTERED_TALLIES.value(connection)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """A live lease, the worker that holds it, and its times relative to now."""

    worker: str
    lease: Lease
    ran_ms: int
    left_ms: int
    lock_duration_ms: int
    timeout_ms: int | None = None
    """The timeout that was stored with a task; None means its queue's."""

    @property
    def is_late(self) -> bool:
        """True if less than a third is left: its worker should have renewed it twice by now."""
        return self.left_ms < self.lock_duration_ms / 3


def held_leases(using: str, workers: Sequence[str]) -> list[HeldLease]:
    """Return the live leases of these workers. Reads only."""
    now = timing.now_ms()
    rows = store.workers.held_leases(connections[using], workers, now=now)
    return [
        HeldLease(
            worker=worker,
            lease=Lease(queue=queue, id=id, lock_token=token),
            ran_ms=now - locked_at,
            left_ms=locked_until - now,
            lock_duration_ms=duration,
            timeout_ms=stored_timeout_ms(timeout),
        )
        for worker, queue, id, token, locked_at, locked_until, duration, timeout in rows
    ]


def busy_slots(using: str, workers: Sequence[str]) -> dict[str, int]:
    """Return the number of live leases that each of these workers holds. Reads only."""
    if not workers:
        return {}
    now = timing.now_ms()
    return dict(store.workers.busy_slots(connections[using], workers, now=now))


def ended_leases(using: str, leases: Sequence[Lease]) -> dict[str, bool]:
    """Return the tokens of those leases that have ended, and whether by a discard. Reads only."""
    ended = store.leases.ended_leases(connections[using], leases)
    return {token: reason == "Discarded" for token, reason in ended.items()}
