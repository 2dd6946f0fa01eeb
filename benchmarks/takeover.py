"""How soon does a delivery start after a worker ends, a foreign commit, or a due time?"""

import json
import os
import sqlite3
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from subprocess import Popen
from threading import Event

import psutil
from django.conf import settings

from benchmarks.processes import running_worker, wait_until
from django_mqlite.models import Message, Queue
from django_mqlite.verbs.workers import registered_workers

ROUNDS = int(os.environ.get("MQLITE_BENCHMARK_ROUNDS", "5"))
TIMES = 20 * ROUNDS
GRACE = 5

FOREIGN_ENQUEUE = """
    INSERT INTO mqlite_messages (queue, state, enqueued_at, visible_at, content_type, body)
    VALUES ('starts', 'active', 1, 1, 'application/octet-stream', x'') RETURNING id
"""

Row = dict[str, object]


def run() -> list[Row]:
    """Return milliseconds from each event to the start of the next delivery."""
    Queue.objects.create_queue("starts", lock_duration=60)
    return [
        row(
            f"TERM during a long job, after its grace period of {GRACE} s",
            [
                takeover_time(Popen.terminate, f"--shutdown-timeout={GRACE}") - GRACE * 1000
                for _ in range(ROUNDS)
            ],
        ),
        row("KILL of a worker of one process", [takeover_time(Popen.kill) for _ in range(ROUNDS)]),
        row(
            "KILL of a process of --processes 2",
            [takeover_time(kill_busy_child, "--processes=2") for _ in range(ROUNDS)],
        ),
        row("commit by a program that does not ring the doorbell", foreign_commits()),
        row("a scheduled message becomes due", schedules()),
        row("a recurring schedule ticks", ticks()),
    ]


def row(name: str, spent: list[float]) -> Row:
    median, longest = round(statistics.median(spent), 1), round(max(spent), 1)
    return {"name": name, "times": len(spent), "median ms": median, "max ms": longest}


def takeover_time(end: Callable[[Popen[str]], None], *options: str) -> float:
    """Return the time from the end of a message's worker to the start of its next delivery."""
    with running_worker("--queues=starts", "--threads=1", *options) as first:
        message = Message.objects.enqueue("starts", {"seconds": 60})
        wait_for_start(message.pk, number=1)
        before = len(registered_workers("default"))
        with running_worker("--queues=starts", "--threads=1"):
            wait_until(lambda: len(registered_workers("default")) > before)
            ended = time.time_ns()
            end(first)
            spent = wait_for_start(message.pk, number=2) - ended
            wait_until(lambda: not Message.objects.filter(pk=message.pk).exists())
    return spent / 1e6


def kill_busy_child(supervisor: Popen[str]) -> None:
    (message,) = Message.objects.filter(queue="starts")
    psutil.Process(int(str(message.locked_by).split(":")[1])).kill()


def foreign_commits() -> list[float]:
    """Enqueue with plain SQL on a connection without Django."""
    spent = []
    path = settings.DATABASES["default"]["NAME"]
    with running_worker("--queues=starts"), closing(sqlite3.connect(path)) as program:
        wait_until(lambda: bool(registered_workers("default")))
        for number in range(TIMES):
            Event().wait(
                0.2 + 0.007 * (number % 15)
            )  # until the worker is idle; varied, so as not to match its polls
            with program:
                ((id,),) = program.execute(FOREIGN_ENQUEUE).fetchall()
            committed = time.time_ns()
            spent.append((wait_for_start(id, number=1) - committed) / 1e6)
    return spent


def schedules() -> list[float]:
    spent = []
    with running_worker("--queues=starts"):
        wait_until(lambda: bool(registered_workers("default")))
        for number in range(TIMES):
            message = Message.objects.enqueue("starts", b"", delay=0.3 + 0.007 * (number % 15))
            due = message.visible_at.timestamp() * 1000
            spent.append(wait_for_start(message.pk, number=1) / 1e6 - due)
    return spent


def ticks() -> list[float]:
    """Return the time from each tick of a schedule to the start of its handler."""
    Queue.objects.configure("starts", retain_completed=3600)
    every_second = {"every": 1, "phase": 0.35, "queue": "starts", "data": {}}
    os.environ["MQLITE_BENCHMARK_SCHEDULES"] = json.dumps({"ticks": every_second})
    with running_worker("--queues=starts"):
        wait_until(lambda: len(ticked()) >= TIMES // 4)
    del os.environ["MQLITE_BENCHMARK_SCHEDULES"]
    return [
        starts()[message.pk, 1] / 1e6 - tick.timestamp() * 1000
        for message in ticked()
        if (tick := datetime.fromisoformat(message.properties["scheduled_for"]))
    ]


def ticked() -> list[Message]:
    """Return the completed messages of the schedule."""
    messages = Message.objects.filter(queue="starts", state="completed")
    return [message for message in messages if message.properties]


def wait_for_start(id: int, *, number: int) -> int:
    """Wait until the message is started for this time; return the start in nanoseconds."""
    return wait_until(lambda: starts().get((id, number), 0))


def starts() -> dict[tuple[int, int], int]:
    """Return each start by message and number. An interrupted delivery keeps its delivery count."""
    path = Path(settings.DIRECTORY) / "starts"
    lines = path.read_text().splitlines() if path.exists() else []
    numbers: Counter[int] = Counter()
    times = {}
    for id, _, at in map(str.split, lines):
        numbers[int(id)] += 1
        times[int(id), numbers[int(id)]] = int(at)
    return times
