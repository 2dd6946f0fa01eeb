"""The register of live workers."""

import json
from dataclasses import asdict

from django.db import connections

from . import clock
from .store.workers import forget_worker, record_worker, worker_records
from .transactions import write_transaction
from .types import WorkerRecord


def live_workers(using: str) -> list[WorkerRecord]:
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
    """Take the worker off the register."""
    with write_transaction(using) as connection:
        forget_worker(connection, worker)
