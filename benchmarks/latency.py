"""How soon after a commit does an idle worker start the handler, and how long is a commit?"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import Popen
from threading import Event

from django.db import connection, transaction

from benchmarks.measure import Row, percentiles, timed
from benchmarks.processes import running_worker, wait_until
from django_mqlite.models import Message, Queue
from django_mqlite.verbs.workers import registered_workers

TIMES = 500


def run() -> list[Row]:
    Queue.objects.create_queue("stamp")
    with running_worker("--queues=stamp", quiet=False) as worker:
        wait_until(lambda: bool(registered_workers("default")), worker)
        with bare_commits() as commit:
            pairs = [(measure_start(worker), commit()) for _ in range(TIMES)]
    starts, commits = zip(*pairs, strict=True)
    return [
        {"name": f"commit to handler start, {TIMES} times", **percentiles(list(starts))},
        {"name": "a bare commit at FULL, measured alternately", **percentiles(list(commits))},
    ]


@contextmanager
def bare_commits() -> Iterator[Callable[[], float]]:
    """Yield a function that commits a row to another file and returns the milliseconds."""
    name = Path(connection.settings_dict["NAME"]).with_name("bare.sqlite3")
    with closing(connection.Database.connect(name, isolation_level=None)) as bare:
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE commits (value)")

        def commit() -> float:
            Event().wait(0.05)
            return timed(lambda: bare.execute("INSERT INTO commits VALUES (1)"))[0] / 1000

        yield commit


def measure_start(worker: Popen[str]) -> float:
    committed: list[int] = []
    Event().wait(0.05)  # until the worker has settled the previous message
    with transaction.atomic():
        transaction.on_commit(lambda: committed.append(time.time_ns()))
        message = Message.objects.enqueue("stamp", b"")
    assert worker.stdout is not None
    id, started = worker.stdout.readline().split()
    if int(id) != message.pk:
        raise RuntimeError(f"got message {id}, expected {message.pk}")
    return (int(started) - committed[0]) / 1e6
