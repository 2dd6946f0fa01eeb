"""How soon does a handler start? From the commit of a message under an idle worker."""

import time
from subprocess import Popen
from threading import Event

from django.db import transaction

from benchmarks.measure import Row, percentiles
from benchmarks.processes import running_worker, wait_until
from django_mqlite.models import Message, Queue
from django_mqlite.workers import live_workers

TIMES = 500


def run() -> list[Row]:
    Queue.objects.create_queue("stamp")
    with running_worker("--queues=stamp", quiet=False) as worker:
        wait_until(lambda: bool(live_workers("default")), worker)
        spent = [one(worker) for _ in range(TIMES)]
    return [{"name": f"commit to handler start, {TIMES} times", **percentiles(spent)}]


def one(worker: Popen[str]) -> float:
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
