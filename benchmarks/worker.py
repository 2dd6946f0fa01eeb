"""A real `runworker`: messages and commits per second, from commit to handler start, idle CPU."""

import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from subprocess import Popen
from threading import Event

import psutil
from django.db import connection, transaction

from benchmarks.processes import running_worker
from django_mqlite.models import Message, Queue
from django_mqlite.workers import live_workers

BACKLOG = int(os.environ.get("MQLITE_BENCHMARK_BACKLOG", "5000"))
LATENCIES = 200
IDLE_SECONDS = 10.0
SETUPS = ((1, 1), (1, 8), (1, 64), (2, 8))
"""Processes and threads of each."""

# SQLite counts the commits in the index of its WAL: the second word of the header's first copy.
COUNT_COMMITS = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(12)[8:])"

Row = dict[str, object]


def run() -> list[Row]:
    """Messages a second, commits per 1,000 messages, milliseconds, and per cent of one core."""
    for name in ("noop", "stamp"):
        Queue.objects.create_queue(name)
    rows = [drain(*setup, synchronous) for synchronous in ("FULL", "NORMAL") for setup in SETUPS]
    return [*rows, latency(), idle()]


def row(name: str, **figures: float) -> Row:
    """Every row has every column."""
    columns = ("messages/s", "commits/1,000", "p50 ms", "p99 ms", "CPU %")
    return {"name": name} | {column: figures.get(column, "") for column in columns}


def drain(processes: int, threads: int, synchronous: str) -> Row:
    """A backlog of no-ops, worked off by a worker that has started and waits for the queue."""
    os.environ["MQLITE_BENCHMARK_SYNCHRONOUS"] = synchronous
    queue = Queue.objects.get(name="noop")
    queue.pause()
    Message.objects.enqueue_many("noop", [b""] * BACKLOG)
    options = (f"--threads={threads}", f"--processes={processes}", "--queues=noop")
    with running_worker(*options) as worker:
        wait_until(lambda: len(live_workers("default")) == processes, worker)
        before = commits()
        began = time.perf_counter()
        queue.resume()
        wait_until(lambda: not Message.objects.filter(queue="noop").exists(), worker)
        spent = time.perf_counter() - began
        counted = commits() - before - 1  # the resuming
    os.environ["MQLITE_BENCHMARK_SYNCHRONOUS"] = "FULL"
    return row(
        f"{processes} × {threads}, {synchronous}",
        **{
            "messages/s": round(BACKLOG / spent),
            "commits/1,000": round(counted * 1000 / BACKLOG),
        },
    )


def commits() -> int:
    """How many commits the file has seen since it was opened first.

    Read by a process of its own: here the closing would drop the locks that SQLite holds.
    """
    index = f"{connection.settings_dict['NAME']}-shm"
    found = subprocess.run(
        [sys.executable, "-c", COUNT_COMMITS, index], capture_output=True, check=True
    )
    (count,) = struct.unpack("=I", found.stdout)
    return int(count)


def latency() -> Row:
    """From the commit of one message under an idle worker to the start of its handler."""
    with running_worker("--queues=stamp", quiet=False) as worker:
        wait_until(lambda: bool(live_workers("default")), worker)
        spent = sorted(one_latency(worker) for _ in range(LATENCIES))
    return row(
        f"commit to handler start, idle, {LATENCIES} times",
        **{
            "p50 ms": round(statistics.median(spent), 2),
            "p99 ms": round(spent[int(len(spent) * 0.99) - 1], 2),
        },
    )


def one_latency(worker: Popen[str]) -> float:
    committed: list[int] = []
    Event().wait(0.05)  # the worker has settled the one before and rests
    with transaction.atomic():
        transaction.on_commit(lambda: committed.append(time.time_ns()))
        message = Message.objects.enqueue("stamp", b"")
    assert worker.stdout is not None
    id, started = worker.stdout.readline().split()
    if int(id) != message.pk:
        raise RuntimeError(f"message {message.pk} was expected, not {id}")
    return (int(started) - committed[0]) / 1e6


def idle() -> Row:
    """Of one core, while nothing happens."""
    with running_worker("--queues=noop") as worker:
        wait_until(lambda: bool(live_workers("default")), worker)
        Event().wait(1.0)
        process = psutil.Process(worker.pid)
        before = sum(process.cpu_times()[:2])
        Event().wait(IDLE_SECONDS)
        used = sum(process.cpu_times()[:2]) - before
    return row(f"idle for {IDLE_SECONDS:.0f} s", **{"CPU %": round(used * 100 / IDLE_SECONDS, 2)})


def wait_until(condition: Callable[[], bool], worker: Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if worker.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the worker has ended, or takes too long")
        Event().wait(0.002)
