"""The register of live workers, and what they hold."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connections

from .. import timing
from ..store import sqlite as store
from ..transactions import write_transaction
from ..types import Lease, MinuteTally, State, Tallies, WorkerRecord

MINUTE_MS = 60_000
MINUTES = 60
"""Kept and shown."""


class Tally:
    """What one worker counts."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])

    def add(self, queue: str, state: str, *, now: int) -> None:
        """A delivery has left its message in this state; set aside it is neither well nor badly."""
        if state == State.DEFERRED:
            return
        self._counts[queue, now // MINUTE_MS][state != State.COMPLETED] += 1

    def facts(self, *, now: int) -> Tallies:
        """What is to be written; older minutes are forgotten here."""
        oldest = _oldest(now)
        for key in [key for key in self._counts if key[1] < oldest]:
            del self._counts[key]
        facts: dict[str, list[Sequence[int]]] = defaultdict(list)
        for (queue, minute), (completed, failed) in self._counts.items():
            facts[queue].append((minute, completed, failed))
        return dict(facts)


def merged(all_tallies: Iterable[Tallies], *, now: int) -> Tallies:
    """The sums of several workers' counts."""
    sums: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for tallies in all_tallies:
        for queue, minutes in tallies.items():
            for minute, completed, failed in minutes:
                sums[queue][minute][0] += completed
                sums[queue][minute][1] += failed
    oldest = _oldest(now)
    return {
        queue: [(minute, *counts) for minute, counts in minutes.items() if minute >= oldest]
        for queue, minutes in sums.items()
    }


def last_hour(tallies: Tallies, queue: str, *, now: int) -> tuple[MinuteTally, ...]:
    """The queue's last hour, minute by minute, the one that is running last."""
    counts: Mapping[int, Sequence[int]] = {
        minute: counts for minute, *counts in tallies.get(queue, ())
    }
    oldest = _oldest(now)
    return tuple(
        MinuteTally(began_ms=minute * MINUTE_MS, completed=completed, failed=failed)
        for minute in range(oldest, oldest + MINUTES)
        for completed, failed in [counts.get(minute, (0, 0))]
    )


def _oldest(now: int) -> int:
    return now // MINUTE_MS - MINUTES + 1


SEEN_WITHIN_MS = 60_000
"""A worker writes every 15 s; one that has missed four times does not count."""


def was_seen(record: WorkerRecord, *, now: int) -> bool:
    """Whether it has written of late; no entry from the future counts, left by a clock set back."""
    return abs(now - record.seen_at) <= SEEN_WITHIN_MS


def live_workers(using: str) -> list[WorkerRecord]:
    """Those of registered_workers() that have written of late."""
    now = timing.now_ms()
    return [worker for worker in registered_workers(using) if was_seen(worker, now=now)]


def registered_workers(using: str) -> list[WorkerRecord]:
    """Every worker that has registered and was not forgotten; see `seen_at` for how alive it is."""
    return [
        _read(worker, facts, seen_at)
        for worker, facts, seen_at in store.workers.worker_records(connections[using])
    ]


def _read(worker: str, facts: str, seen_at: int) -> WorkerRecord:
    values = json.loads(facts)
    queues = tuple(values.pop("queues"))
    return WorkerRecord(worker=worker, queues=queues, seen_at=seen_at, **values)


def register(using: str, record: WorkerRecord) -> None:
    """Write the record, with the time of now; a small write, so do it seldom."""
    facts = asdict(record)
    del facts["worker"], facts["seen_at"]
    with write_transaction(using) as (connection, now):
        store.workers.record_worker(connection, record.worker, json.dumps(facts), now=now)


def forget(using: str, worker: str) -> None:
    """Take the worker off the register; what it has counted in the last hour is kept."""
    with write_transaction(using) as (connection, now):
        facts = json.loads(store.workers.forget_worker(connection, worker) or "{}")
        if facts.get("settled"):
            kept = merged([_of_the_gone(connection), facts["settled"]], now=now)
            store.workers.keep_settled(connection, json.dumps(kept), now=now)


def settled(using: str) -> Tallies:
    """What all workers have counted in the last hour, those that are gone too."""
    counted = [worker.settled for worker in registered_workers(using)]
    return merged([_of_the_gone(connections[using]), *counted], now=timing.now_ms())


def _of_the_gone(connection: Any) -> Tallies:
    tallies: Tallies = json.loads(store.workers.settled_before(connection) or "{}")
    return tallies


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """A live lease and who holds it, as of a moment ago."""

    worker: str
    lease: Lease
    ran_ms: int
    left_ms: int
    lock_duration_ms: int

    @property
    def is_late(self) -> bool:
        """Whether less than a third is left: its holder should have renewed it twice by now."""
        return self.left_ms < self.lock_duration_ms / 3


def held_leases(using: str, workers: Sequence[str]) -> list[HeldLease]:
    """The live leases of these workers. A read."""
    now = timing.now_ms()
    rows = store.workers.held_leases(connections[using], workers, now=now)
    return [
        HeldLease(
            worker=worker,
            lease=Lease(queue=queue, message_id=id, lock_token=token),
            ran_ms=now - locked_at,
            left_ms=locked_until - now,
            lock_duration_ms=duration,
        )
        for worker, queue, id, token, locked_at, locked_until, duration in rows
    ]
