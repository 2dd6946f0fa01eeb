"""Do writers starve? Eight processes enqueue beside a busy worker, on both engines."""

import os

from benchmarks.measure import Row, percentiles
from benchmarks.processes import running_worker, writers
from benchmarks.settings import OWN_ENGINE
from django_mqlite.models import Queue

PROCESSES = 8
SECONDS = float(os.environ.get("MQLITE_BENCHMARK_SECONDS", "30"))
ENGINES = (OWN_ENGINE, "django.db.backends.sqlite3")


def run() -> list[Row]:
    Queue.objects.create_queue("noop")
    return [measure(engine) for engine in ENGINES]


def measure(engine: str) -> Row:
    """Each with a timeout of 5 s, at FULL; the worker has 8 threads."""
    os.environ["MQLITE_BENCHMARK_ENGINE"] = engine
    try:
        with running_worker("--queues=noop", "--threads=8"):
            told = writers(PROCESSES, SECONDS)
    finally:
        os.environ["MQLITE_BENCHMARK_ENGINE"] = OWN_ENGINE
    counts = [len(one["waits"]) - one["errors"] for one in told]
    return {
        "name": engine,
        "commits/s": round(sum(counts) / SECONDS),
        **percentiles([wait for one in told for wait in one["waits"]]),
        "errors": sum(one["errors"] for one in told),
        "slowest/fastest writer": round(min(counts) / max(counts), 2),
    }
