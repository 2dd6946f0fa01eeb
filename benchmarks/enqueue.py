"""What does an enqueue cost, 1 or 64 per commit, compared with bare statements?

The bare statement through Django's cursor shows Django's part of the cost.
"""

from django.db import connection

from benchmarks.floor import Floor, at_each_level, now_ms, repeated
from benchmarks.measure import Row, against_floor
from django_mqlite import enqueue, enqueue_many
from django_mqlite.models import Queue
from django_mqlite.store.sqlite import enqueue as store
from django_mqlite.types import NewMessage

BODY = b"x" * 256
BATCH = [BODY] * 64
LEVELS = {"FULL": (300, 60), "NORMAL": (1_000, 100)}
"""Single enqueues and batches of 64 per round."""


def run() -> list[Row]:
    Queue.objects.create_queue("enqueue")
    floor, rows = Floor(), []

    def enqueue_one() -> int:
        enqueue("enqueue", BODY)
        return 1

    def floor_one() -> int:
        floor.enqueue("enqueue", BODY)
        return 1

    def by_cursor() -> int:
        new = NewMessage(queue="enqueue", body=BODY, content_type="application/octet-stream")
        store.enqueue(connection, new, now=now_ms())
        return 1

    def enqueue_batch() -> int:
        return len(enqueue_many("enqueue", BATCH))

    def floor_batch() -> int:
        floor.enqueue_many("enqueue", BATCH)
        return len(BATCH)

    with at_each_level(floor) as set_level:
        for level, (ones, batches) in LEVELS.items():
            set_level(level)
            rows += [
                against_floor(
                    f"1 per commit, {level}", repeated(ones, enqueue_one), repeated(ones, floor_one)
                ),
                against_floor(
                    f"the same statement through Django's cursor, {level}",
                    repeated(ones, by_cursor),
                    repeated(ones, floor_one),
                ),
                against_floor(
                    f"64 per commit, {level}",
                    repeated(batches, enqueue_batch),
                    repeated(batches, floor_batch),
                ),
            ]
    return rows
