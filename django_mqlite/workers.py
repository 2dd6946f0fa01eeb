"""The register of live workers, and what they hold."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connections

from . import clock
from .store.workers import (
    forget_worker,
    keep_settled,
    record_worker,
    settled_before,
    worker_records,
)
from .store.workers import held_leases as read_held_leases
from .tallies import merged
from .transactions import write_transaction
from .types import Lease, Tallies, WorkerRecord

SEEN_WITHIN_MS = 60_000
"""A worker writes every 15 s; one that has missed four times does not count."""


def was_seen(record: WorkerRecord, *, now: int) -> bool:
    """Whether it has written of late; no entry from the future counts, left by a clock set back."""
    return abs(now - record.seen_at) <= SEEN_WITHIN_MS


def live_workers(using: str) -> list[WorkerRecord]:
    """Those of registered_workers() that have written of late."""
    now = clock.now_ms()
    return [worker for worker in registered_workers(using) if was_seen(worker, now=now)]


def registered_workers(using: str) -> list[WorkerRecord]:
    """Every worker that has registered and was not forgotten; see `seen_at` for how alive it is."""
    return [
        _read(worker, facts, seen_at)
        for worker, facts, seen_at in worker_records(connections[using])
    ]


def _read(worker: str, facts: str, seen_at: int) -> WorkerRecord:
    values = json.loads(facts)
    queues = tuple(values.pop("queues"))
    return WorkerRecord(worker=worker, queues=queues, seen_at=seen_at, **values)


def register(using: str, record: WorkerRecord) -> None:
    """Write the record, with the time of now; a small write, so do it seldom."""
    facts = asdict(record)
    del facts["worker"], facts["seen_at"]
    with write_transaction(using) as connection:
        record_worker(connection, record.worker, json.dumps(facts), now=clock.now_ms())


def forget(using: str, worker: str) -> None:
    """Take the worker off the register; what it has counted in the last hour is kept."""
    with write_transaction(using) as connection:
        facts = json.loads(forget_worker(connection, worker) or "{}")
        if facts.get("settled"):
            now = clock.now_ms()
            kept = merged([_of_the_gone(connection), facts["settled"]], now=now)
            keep_settled(connection, json.dumps(kept), now=now)


def settled(using: str) -> Tallies:
    """What all workers have counted in the last hour, those that are gone too."""
    counted = [worker.settled for worker in registered_workers(using)]
    return merged([_of_the_gone(connections[using]), *counted], now=clock.now_ms())


def _of_the_gone(connection: Any) -> Tallies:
    tallies: Tallies = json.loads(settled_before(connection) or "{}")
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
    now = clock.now_ms()
    return [
        HeldLease(
            worker=worker,
            lease=Lease(queue=queue, message_id=id, lock_token=token),
            ran_ms=now - locked_at,
            left_ms=locked_until - now,
            lock_duration_ms=duration,
        )
        for worker, queue, id, token, locked_at, locked_until, duration in read_held_leases(
            connections[using], workers, now=now
        )
    ]
