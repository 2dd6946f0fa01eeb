"""Does anything grow while a producer and a worker run for half an hour? `make soak MINUTES=30`

Not a scenario, because its duration is an argument. It samples the worker's resident memory,
descriptors and threads and the size of the WAL, and reports the minimum, median and maximum of the
first and of the last third.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import psutil

QUEUES = ("noop", "reads", "writes", "fails-once", "coroutines")
WARM_UP = 10.0
"""Seconds before the first sample, for imports, threads and caches."""
SAMPLE_EVERY = 5.0
COMMIT_INTERVAL = 0.1
"""Seconds between two commits of the producer."""

Sample = dict[str, float]


def soak(*, minutes: float, rate: int) -> dict[str, object]:
    """Produce `rate` messages per second; all of them must be handled in the end."""
    from benchmarks.measure import environment  # noqa: PLC0415 - after setup
    from benchmarks.processes import running_worker  # noqa: PLC0415 - after setup
    from django_mqlite.models import Message, Queue  # noqa: PLC0415 - after setup

    for name in QUEUES:
        Queue.objects.create_queue(name, backoff_base=0.1)
    with running_worker("--threads=8", f"--queues={','.join(QUEUES)}") as worker:
        figures = produce_and_sample(psutil.Process(worker.pid), minutes=minutes, rate=rate)
        wait_until_empty(worker)
    remaining = Message.objects.count()  # dead letters: no message may fail
    return {
        "environment": environment(),
        **figures,
        "remaining": remaining,
        "exit code": worker.returncode,
    }


def produce_and_sample(process: psutil.Process, *, minutes: float, rate: int) -> dict[str, object]:
    rng = random.Random(0)
    started = time.monotonic()
    next_sample = started + WARM_UP
    produced = 0
    samples: list[Sample] = []
    while (now := time.monotonic()) < started + minutes * 60:
        produced += produce(rng, round(rate * (now - started)) - produced)
        if now >= next_sample:
            next_sample += SAMPLE_EVERY
            samples.append(sample(process))
            print(json.dumps({"minute": round((now - started) / 60, 2), **samples[-1]}), flush=True)
        Event().wait(COMMIT_INTERVAL)
    return {
        "minutes": minutes,
        "messages": produced,
        "samples": len(samples),
        "first third": spread(samples[: len(samples) // 3]),
        "last third": spread(samples[-(len(samples) // 3) :]),
    }


def produce(rng: random.Random, count: int) -> int:
    """Enqueue messages in one commit, some of them due a little later."""
    from django.db import transaction  # noqa: PLC0415 - after setup

    from django_mqlite import enqueue  # noqa: PLC0415 - after setup

    with transaction.atomic():
        for _ in range(count):
            delay = 1 if rng.random() < 0.1 else 0
            enqueue(rng.choice(QUEUES), {"size": "x" * rng.randrange(2_000)}, delay=delay)
    return count


def sample(process: psutil.Process) -> Sample:
    from django.db import connection  # noqa: PLC0415 - after setup

    from django_mqlite.models import Message  # noqa: PLC0415 - after setup

    path = Path(connection.settings_dict["NAME"])
    with process.oneshot():
        return {
            "rss_mb": round(process.memory_info().rss / 2**20, 2),
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            "wal_mb": round(path.with_name(f"{path.name}-wal").stat().st_size / 2**20, 2),
            "database_mb": round(path.stat().st_size / 2**20, 2),
            "waiting": Message.objects.count(),
        }


def spread(samples: list[Sample]) -> dict[str, list[float]]:
    """Return the minimum, median and maximum of each figure."""
    names = samples[0] if samples else []
    columns = {name: [sample[name] for sample in samples] for name in names}
    return {
        name: [min(values), statistics.median(values), max(values)]
        for name, values in columns.items()
    }


def wait_until_empty(worker: subprocess.Popen[str]) -> None:
    from django_mqlite.models import Message  # noqa: PLC0415 - after setup

    deadline = time.monotonic() + 120
    while Message.objects.exclude(state="dead_lettered").exists():
        if worker.poll() is not None or time.monotonic() > deadline:
            return
        Event().wait(COMMIT_INTERVAL)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="duration (30)")
    parser.add_argument("--rate", type=int, default=50, help="messages per second (50)")
    parser.add_argument("--output", type=Path, help="write the result to this file as JSON")
    arguments = parser.parse_args()
    from benchmarks.__main__ import prepare  # noqa: PLC0415 - not needed by --help

    with TemporaryDirectory(prefix="mqlite-soak-") as directory:
        os.environ.setdefault("MQLITE_BENCHMARK_SYNCHRONOUS", "FULL")
        prepare(directory)
        result = soak(minutes=arguments.minutes, rate=arguments.rate)
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.output:
        arguments.output.write_text(f"{text}\n")
    return 1 if result["remaining"] or result["exit code"] else 0


if __name__ == "__main__":
    sys.exit(main())
