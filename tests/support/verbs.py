"""Short names for what many tests do."""

from typing import Any

from django.db import connection, models

from django_mqlite import timing
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.store import sqlite as store
from django_mqlite.types import WorkerRecord


def claim_one(queue: Queue | str, **options: Any) -> Message:
    """Claim and return a message; fail unless there is exactly one."""
    (message,) = Message.objects.claim(str(queue), **options)
    return message


def claim_ids(queue: Queue | str, limit: int = 100) -> list[int]:
    return [message.pk for message in Message.objects.claim(str(queue), limit=limit)]


def enqueue_and_claim(queue: Queue | str, data: Any = None, **options: Any) -> Message:
    Message.objects.enqueue(str(queue), data, **options)
    return claim_one(queue)


def deferred(queue: Queue | str, **options: Any) -> Message:
    """Return a message that was enqueued, claimed and deferred."""
    message = enqueue_and_claim(queue, **options)
    message.defer()
    return message


def dead_letter(queue: Queue | str, data: Any = None, **options: Any) -> DeadLetter:
    """Enqueue, claim and reject a message."""
    message = enqueue_and_claim(queue, data, **options)
    message.reject("Broken")
    return DeadLetter.objects.get(pk=message.pk)


def reap(limit: int = 1_000) -> list[store.leases.Released]:
    """Run one sweep that ends expired leases."""
    return store.leases.release_expired_leases(connection, now=timing.now_ms(), limit=limit)


def activate(limit: int = 1_000) -> int:
    """Run one sweep that activates due messages."""
    return store.sweeps.ACTIVATE_DUE.run(connection, now=timing.now_ms(), limit=limit)


def overwrite(rows: models.QuerySet[Any], **values: Any) -> int:
    """Update columns as another program would, past the verbs."""
    return models.QuerySet.update(rows, **values)


def state_of(message: Message) -> str:
    """Return the state in the database; "gone" if there is no such row."""
    states = Message.objects.filter(pk=message.pk).values_list("state", flat=True)
    return states.first() or "gone"


def row_of(message: Message) -> dict[str, Any]:
    """Return the row in the database, to be compared before and after."""
    return Message.objects.filter(pk=message.pk).values().get()


def tallies(queue: str, *minutes: tuple[int, int, int]) -> dict[str, Any]:
    """Return a worker's counts: rows of minute, completed and failed deliveries."""
    rows = [(minute, label, counts[label]) for minute, *counts in minutes for label in (0, 1)]
    return {"minutes": {queue: rows}}


def record(worker: str = "w1", queues: tuple[str, ...] = ("jobs",), **facts: Any) -> WorkerRecord:
    """Return a worker's registration."""
    defaults = {
        "host": "host",
        "boot_id": "boot",
        "pid_namespace": 1,
        "pid": 1,
        "process_started_at": 0.0,
        "slots": 4,
        "in_flight": 1,
        "started_at": 0,
    }
    return WorkerRecord(worker=worker, queues=queues, **(defaults | facts))
