"""Does the memory of a worker grow between 1,000 and 100,000 messages?"""

import psutil

from benchmarks.measure import Row
from benchmarks.processes import running_worker, wait_until
from django_mqlite.models import Message, Queue
from django_mqlite.verbs.workers import registered_workers

MARKS = (1_000, 100_000)


def run() -> list[Row]:
    queue = Queue.objects.create_queue("noop")
    rows, done = [], 0
    with running_worker("--queues=noop", "--threads=8") as worker:
        wait_until(lambda: bool(registered_workers("default")), worker)
        process = psutil.Process(worker.pid)
        for mark in MARKS:
            for start in range(done, mark, 1_000):
                Message.objects.enqueue_many(queue.name, [b"x" * 256] * min(1_000, mark - start))
            done = mark
            wait_until(lambda: not Message.objects.filter(queue="noop").exists(), worker)
            rows.append(
                {
                    "name": f"after {mark:,} messages",
                    "resident MB": round(process.memory_info().rss / 2**20, 1),
                }
            )
    return rows
