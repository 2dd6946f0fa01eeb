"""Do writers starve when eight processes enqueue beside a busy worker, on both engines?"""

import os
from typing import Any

from benchmarks.measure import Row, percentiles
from benchmarks.processes import running_worker, writers
from benchmarks.settings import OWN_ENGINE
from django_mqlite.models import Queue

PROCESSES = 8
SECONDS = float(os.environ.get("MQLITE_BENCHMARK_SECONDS", "30"))
ROUNDS = 2
"""Of each engine in turn, half of the seconds each."""

ENGINES = (OWN_ENGINE, "django.db.backends.sqlite3")

Told = dict[str, Any]
"""A writer's `waits` and `errors`."""


def run() -> list[Row]:
    Queue.objects.create_queue("noop")
    told: dict[str, list[list[Told]]] = {engine: [] for engine in ENGINES}
    for _ in range(ROUNDS):
        for engine, rounds in told.items():
            rounds.append(measure(engine))
    return [row(engine, rounds) for engine, rounds in told.items()]


def measure(engine: str) -> list[Told]:
    """Return the results of the writers; their timeout is 5 s, and the worker has 8 threads."""
    os.environ["MQLITE_BENCHMARK_ENGINE"] = engine
    try:
        with running_worker("--queues=noop", "--threads=8"):
            return writers(PROCESSES, SECONDS / ROUNDS)
    finally:
        os.environ["MQLITE_BENCHMARK_ENGINE"] = OWN_ENGINE


def row(engine: str, rounds: list[list[Told]]) -> Row:
    counts = [[len(one["waits"]) - one["errors"] for one in told] for told in rounds]
    every = [one for told in rounds for one in told]
    return {
        "name": engine,
        "commits/s": round(sum(map(sum, counts)) / SECONDS),
        **percentiles([wait for one in every for wait in one["waits"]]),
        "errors": sum(one["errors"] for one in every),
        "slowest/fastest writer": round(min(min(each) / max(each) for each in counts), 2),
    }
