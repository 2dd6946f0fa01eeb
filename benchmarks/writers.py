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
"""Alternating rounds of each engine, which share the seconds."""

ENGINES = (OWN_ENGINE, "django.db.backends.sqlite3")

WriterResult = dict[str, Any]
"""A writer's `waits` and `errors`."""


def run() -> list[Row]:
    Queue.objects.create_queue("noop")
    results: dict[str, list[list[WriterResult]]] = {engine: [] for engine in ENGINES}
    for _ in range(ROUNDS):
        for engine, rounds in results.items():
            rounds.append(measure(engine))
    return [row(engine, rounds) for engine, rounds in results.items()]


def measure(engine: str) -> list[WriterResult]:
    """Return the results of the writers; their timeout is 5 s, and the worker has 8 threads."""
    os.environ["MQLITE_BENCHMARK_ENGINE"] = engine
    try:
        with running_worker("--queues=noop", "--threads=8"):
            return writers(PROCESSES, SECONDS / ROUNDS)
    finally:
        os.environ["MQLITE_BENCHMARK_ENGINE"] = OWN_ENGINE


def row(engine: str, rounds: list[list[WriterResult]]) -> Row:
    counts = [[len(w["waits"]) - w["errors"] for w in writers] for writers in rounds]
    results = [result for writers in rounds for result in writers]
    return {
        "name": engine,
        "commits/s": round(sum(map(sum, counts)) / SECONDS),
        **percentiles([wait for result in results for wait in result["waits"]]),
        "errors": sum(result["errors"] for result in results),
        "slowest/fastest writer": round(min(min(commits) / max(commits) for commits in counts), 2),
    }
