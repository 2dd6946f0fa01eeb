"""How fast is a loop of claim and complete, 1 or 64 at a time, compared with bare statements?"""

from functools import partial

from benchmarks.floor import Floor, at_each_level, repeated
from benchmarks.measure import ROUNDS, Row, against_floor
from django_mqlite import enqueue_many
from django_mqlite.models import Message, Queue

BODY = b"x" * 256
LEVELS = {"FULL": {1: 150, 64: 40}, "NORMAL": {1: 500, 64: 60}}
"""Claims per round, by level and limit."""


def run() -> list[Row]:
    Queue.objects.create_queue("claim")
    floor, rows = Floor(), []

    def bare(limit: int) -> int:
        leases = floor.claim("claim", limit)
        floor.complete(leases)
        return len(leases)

    with at_each_level(floor) as set_level:
        for level, times in LEVELS.items():
            for limit, count in times.items():
                set_level("OFF")
                fill(2 * ROUNDS * limit * count)
                set_level(level)
                rows.append(
                    against_floor(
                        f"{limit} per commit, {level}",
                        repeated(count, partial(claim_and_complete, limit)),
                        repeated(count, partial(bare, limit)),
                    )
                )
    return rows


def claim_and_complete(limit: int) -> int:
    """Claim and complete messages; return their number."""
    claimed = Message.objects.claim("claim", limit=limit)
    return sum(Message.objects.complete_many(claimed))


def fill(count: int) -> None:
    for start in range(0, count, 1_000):
        enqueue_many("claim", [BODY] * min(1_000, count - start))
