"""Where does a worker spend its time: SQLite, Django and the verbs, or threads?"""

import statistics
from collections.abc import Callable

from benchmarks.claim_complete import fill
from benchmarks.floor import Floor, at_each_level
from benchmarks.measure import Row, timed
from benchmarks.worker import drain
from django_mqlite.models import Message, Queue
from django_mqlite.types import Completion
from django_mqlite.verbs.settle import Settlement

ROUNDS = 3
THREADS = (1, 8, 64)
CYCLES = {1: 1_000, 8: 400, 64: 80}
"""Cycles of settling and claiming per round, by the number of threads."""


def run() -> list[Row]:
    """Return microseconds per message; the last three columns add up to the worker's time."""
    for queue in ("claim", "noop"):
        Queue.objects.create_queue(queue)
    floor = Floor()
    with at_each_level(floor) as set_level:
        return [row(floor, set_level, level, n) for level in ("FULL", "NORMAL") for n in THREADS]


def row(floor: Floor, set_level: Callable[[str], None], level: str, threads: int) -> Row:
    spent: dict[str, list[float]] = {"bare": [], "verbs": [], "worker": []}
    for _ in range(ROUNDS):
        set_level("OFF")
        fill(2 * (CYCLES[threads] + 1) * threads)
        set_level(level)
        spent["bare"].append(bare(floor, threads))
        spent["verbs"].append(verbs(threads))
        spent["worker"].append(1e6 / drain(1, threads, level)[0])
    bare_us, verbs_us, worker_us = (statistics.median(samples) for samples in spent.values())
    return {
        "name": f"1 × {threads}, {level}",
        "worker, µs": round(worker_us),
        "SQLite": round(bare_us),
        "Django and the verbs": round(verbs_us - bare_us),
        "threads and polling": round(worker_us - verbs_us),
    }


def bare(floor: Floor, threads: int) -> float:
    """Time the statements of a worker's transaction through the bare driver."""
    leases = floor.claim("claim", threads)

    def cycle() -> None:
        nonlocal leases
        leases = floor.settle_and_claim(leases, "claim", threads)

    spent = per_message(cycle, threads)
    floor.complete(leases)
    return spent


def verbs(threads: int) -> float:
    """Time the same work through the manager, in a single thread."""
    messages = Message.objects.claim("claim", limit=threads)

    def cycle() -> None:
        nonlocal messages
        settlements = [Settlement(message=message, outcome=Completion()) for message in messages]
        _, messages = Message.objects.settle_and_claim(
            settlements, ["claim"], limit=threads, worker="shares"
        )

    spent = per_message(cycle, threads)
    Message.objects.complete_many(messages)
    return spent


def per_message(cycle: Callable[[], None], threads: int) -> float:
    return statistics.median(timed(cycle)[0] for _ in range(CYCLES[threads])) / threads
