"""The register of live workers, the leases that they hold, and the deliveries that they count."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from django.db import connections

from .. import timing
from ..message import stored_timeout_ms
from ..store import sqlite as store
from ..transactions import write_transaction
from ..types import Lease, MinuteTally, State, Tallies, WorkerRecord
from .any_text import retry_with_any_text

MINUTE_MS = 60_000
MINUTES = 60
"""The number of minutes that are counted and shown."""

LIVE_WITHIN_MS = 60_000
"""A worker updates its record every 15 s, so a worker that is not live missed four updates."""


class Tally:
    """Count the deliveries of one worker, per queue and minute, for the last hour."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])

    def add(self, queue: str, state: str, *, now: int) -> None:
        """Count a delivery that left its message in `state`. A deferral is not counted."""
        if state == State.DEFERRED:
            return
        self._counts[queue, now // MINUTE_MS][state != State.COMPLETED] += 1

    def last_hour(self, *, now: int) -> Tallies:
        """Return the counts of the last hour, and drop the older ones."""
        oldest = _oldest_minute(now)
        for key in [key for key in self._counts if key[1] < oldest]:
            del self._counts[key]
        tallies: dict[str, list[Sequence[int]]] = defaultdict(list)
        for (queue, minute), (completed, failed) in self._counts.items():
            tallies[queue].append((minute, completed, failed))
        return dict(tallies)


def merge_tallies(all_tallies: Iterable[Tallies], *, now: int) -> Tallies:
    """Return the sums of several workers' counts for the last hour."""
    sums: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for tallies in all_tallies:
        for queue, minutes in tallies.items():
            for minute, completed, failed in minutes:
                sums[queue][minute][0] += completed
                sums[queue][minute][1] += failed
    oldest = _oldest_minute(now)
    return {
        queue: [(minute, *counts) for minute, counts in minutes.items() if minute >= oldest]
        for queue, minutes in sums.items()
    }


def last_hour(tallies: Tallies, queue: str, *, now: int) -> tuple[MinuteTally, ...]:
    """Return the counts of the queue for each of the last 60 minutes, the current one last."""
    counts: Mapping[int, Sequence[int]] = {
        minute: counts for minute, *counts in tallies.get(queue, ())
    }
    oldest = _oldest_minute(now)
    return tuple(
        MinuteTally(began_ms=minute * MINUTE_MS, completed=completed, failed=failed)
        for minute in range(oldest, oldest + MINUTES)
        for completed, failed in [counts.get(minute, (0, 0))]
    )


def _oldest_minute(now: int) -> int:
    return now // MINUTE_MS - MINUTES + 1


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


RECORD_FIELDS = {field.name for field in fields(WorkerRecord)} - {"worker", "seen_at"}
"""The fields of a record that are stored as JSON; the others are columns."""


def _parse_record(worker: str, text: str, seen_at: int) -> WorkerRecord | None:
    """Return the record, without fields that this release does not know; None if it is damaged.

    Workers of two releases run side by side during a deployment.
    """
    known = {name: value for name, value in _parse(text).items() if name in RECORD_FIELDS}
    try:
        known["queues"] = tuple(known["queues"])
        known["settled"] = _checked_tallies(known.get("settled", {}))
        return WorkerRecord(worker=worker, seen_at=seen_at, **known)
    except (KeyError, TypeError):
        return None


def _parse(text: str | None) -> dict[str, Any]:
    """Return the JSON object, or an empty one if another program has written something else."""
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _checked_tallies(tallies: Any) -> Tallies:
    """Return the counts, or none if another program has damaged them."""
    try:
        return {
            queue: [
                (int(minute), int(completed), int(failed)) for minute, completed, failed in rows
            ]
            for queue, rows in tallies.items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}


def register(using: str, record: WorkerRecord) -> None:
    """Write the record with the current time. This is a write transaction, so call it rarely."""
    values = {name: value for name, value in asdict(record).items() if name in RECORD_FIELDS}
    with write_transaction(using) as (connection, now):
        store.workers.RECORD_WORKER.run(
            connection, worker=record.worker, record=json.dumps(values), now=now
        )


@retry_with_any_text
def unregister(using: str, worker: str) -> None:
    """Remove the worker from the register, and keep its counts of the last hour."""
    with write_transaction(using) as (connection, now):
        record = _parse(store.workers.DELETE_WORKER.value(connection, worker=worker))
        if tallies := _checked_tallies(record.get("settled", {})):
            tallies = merge_tallies([_unregistered_tallies(connection), tallies], now=now)
            store.workers.RECORD_UNREGISTERED_TALLIES.run(
                connection, tallies=json.dumps(tallies), now=now
            )


def settled_deliveries(using: str) -> Tallies:
    """Return the deliveries of the last hour, including those of unregistered workers."""
    tallies = [worker.settled for worker in registered_workers(using)]
    return merge_tallies([_unregistered_tallies(connections[using]), *tallies], now=timing.now_ms())


def _unregistered_tallies(connection: Any) -> Tallies:
    return _checked_tallies(_parse(store.workers.UNREGISTERED_TALLIES.value(connection)))


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


def ended_leases(using: str, leases: Sequence[Lease]) -> dict[str, bool]:
    """Return the tokens of those leases that have ended, and whether by a discard. Reads only."""
    ended = store.leases.ended_leases(connections[using], leases)
    return {token: reason == "Discarded" for token, reason in ended.items()}
