"""How soon after a discard does the handler of the message know?"""

import time
from subprocess import Popen

from benchmarks.measure import Row, percentiles
from benchmarks.processes import running_worker
from django_mqlite.models import Message, Queue

TIMES = 100
QUEUES = {"waits": "a thread sees message.lease.lost", "waits-async": "a coroutine is cancelled"}


def run() -> list[Row]:
    for queue in QUEUES:
        Queue.objects.create_queue(queue)
    with running_worker(f"--queues={','.join(QUEUES)}", quiet=False) as worker:
        samples = {queue: [measure(worker, queue) for _ in range(TIMES)] for queue in QUEUES}
    return [
        {"name": f"{QUEUES[queue]}, {TIMES} times", **percentiles(noticed)}
        for queue, noticed in samples.items()
    ]


def measure(worker: Popen[str], queue: str) -> float:
    """Discard a message once its handler runs; return the milliseconds until it has noticed."""
    message = Message.objects.enqueue(queue, b"")
    assert worker.stdout is not None
    worker.stdout.readline()
    discarded_at = time.time_ns()
    if not Message.objects.discard(message.pk):
        raise RuntimeError(f"message {message.pk} was not discarded")
    return (int(worker.stdout.readline()) - discarded_at) / 1e6
