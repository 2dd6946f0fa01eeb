"""How fast does `runworker` drain no-op messages, and with how many commits?"""

import os
import statistics
import struct
import subprocess
import sys
import time

from django.db import connection

from benchmarks.measure import Row, spread
from benchmarks.processes import running_worker, wait_until
from django_mqlite.models import Message, Queue
from django_mqlite.verbs.workers import registered_workers

BACKLOG = int(os.environ.get("MQLITE_BENCHMARK_BACKLOG", "5000"))
ROUNDS = 3
SETUPS = ((1, 1), (1, 8), (1, 64), (2, 8))
"""Processes and threads of each setup."""

# SQLite counts the commits in the index of its WAL: the second word of the header's first copy.
COUNT_COMMITS = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(12)[8:])"


def run() -> list[Row]:
    """Measure alternating rounds of each setup; `commits/1,000` is per 1,000 messages."""
    Queue.objects.create_queue("noop")
    setups = [(*setup, level) for level in ("FULL", "NORMAL") for setup in SETUPS]
    drained = {setup: [] for setup in setups}
    for _ in range(ROUNDS):
        for setup in setups:
            drained[setup].append(drain(*setup))
    return [row(*setup, rounds) for setup, rounds in drained.items()]


def row(processes: int, threads: int, level: str, rounds: list[tuple[float, float]]) -> Row:
    rates = [rate for rate, _ in rounds]
    return {
        "name": f"{processes} × {threads}, {level}",
        "messages/s": round(statistics.median(rates)),
        "spread": spread(rates),
        "commits/1,000": round(statistics.median(commits for _, commits in rounds)),
    }


def drain(processes: int, threads: int, synchronous: str) -> tuple[float, float]:
    """Drain a backlog; return messages per second and commits per 1,000 messages."""
    os.environ["MQLITE_BENCHMARK_SYNCHRONOUS"] = synchronous
    queue = Queue.objects.get(name="noop")
    queue.pause()
    Message.objects.enqueue_many("noop", [b"x" * 256] * BACKLOG)
    options = (f"--threads={threads}", f"--processes={processes}", "--queues=noop")
    with running_worker(*options) as worker:
        wait_until(lambda: len(registered_workers("default")) == processes, worker)
        before = commits()
        started = time.perf_counter()
        queue.resume()
        wait_until(lambda: not Message.objects.filter(queue="noop").exists(), worker)
        spent = time.perf_counter() - started
        committed = commits() - before - 1  # without the commit of resume()
    os.environ["MQLITE_BENCHMARK_SYNCHRONOUS"] = "FULL"
    return BACKLOG / spent, committed * 1000 / BACKLOG


def commits() -> int:
    """Return the number of commits since the file was first opened.

    Another process reads it, because closing the file here would drop SQLite's locks.
    """
    index = f"{connection.settings_dict['NAME']}-shm"
    header = subprocess.run(
        [sys.executable, "-c", COUNT_COMMITS, index], capture_output=True, check=True
    )
    (count,) = struct.unpack("=I", header.stdout)
    return int(count)
