"""How many bytes does SQLite write for a message of 256 bytes, by batch size?"""

import psutil
from django.db import connection

from benchmarks.measure import Row
from django_mqlite.models import Message, Queue

MESSAGES = 4_096
BATCHES = (1, 8, 64)
BODY = b"x" * 256


def run() -> list[Row]:
    """Enqueue, claim and complete messages; the writes of checkpoints are included."""
    Queue.objects.create_queue("bytes")
    return [measure(batch) for batch in BATCHES]


def measure(batch: int) -> Row:
    checkpoint()
    before = written()
    for _ in range(MESSAGES // batch):
        Message.objects.enqueue_many("bytes", [BODY] * batch)
        Message.objects.complete_many(Message.objects.claim("bytes", limit=batch))
    checkpoint()
    return {
        "name": f"{batch} per commit",
        "bytes/message": round((written() - before) / MESSAGES),
    }


def written() -> int:
    return psutil.Process().io_counters().write_chars


def checkpoint() -> None:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
