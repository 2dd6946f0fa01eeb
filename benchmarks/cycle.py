"""How fast are enqueue, claim and complete, 1 or 64 at a time, compared with the floor?"""

from functools import partial

from benchmarks.floor import Floor, at_each_level, repeated
from benchmarks.measure import Row, against_floor
from django_mqlite import enqueue, enqueue_many
from django_mqlite.models import Message, Queue

BODY = b"x" * 256
LEVELS = {"FULL": {1: 120, 64: 30}, "NORMAL": {1: 400, 64: 40}}
"""Repetitions per round, by level and batch size."""


def run() -> list[Row]:
    Queue.objects.create_queue("cycle")
    floor, rows = Floor(), []

    def queue_cycle(limit: int) -> int:
        if limit == 1:
            enqueue("cycle", BODY)
        else:
            enqueue_many("cycle", [BODY] * limit)
        return sum(Message.objects.complete_many(Message.objects.claim("cycle", limit=limit)))

    def floor_cycle(limit: int) -> int:
        if limit == 1:
            floor.enqueue("cycle", BODY)
        else:
            floor.enqueue_many("cycle", [BODY] * limit)
        leases = floor.claim("cycle", limit)
        floor.complete(leases)
        return len(leases)

    with at_each_level(floor) as set_level:
        for level, times in LEVELS.items():
            set_level(level)
            rows += [
                against_floor(
                    f"{limit} per commit, {level}",
                    repeated(count, partial(queue_cycle, limit)),
                    repeated(count, partial(floor_cycle, limit)),
                )
                for limit, count in times.items()
            ]
    return rows
