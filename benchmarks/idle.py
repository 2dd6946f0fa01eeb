"""What does an idle worker cost, in percent of one core and in bytes written?"""

from threading import Event

import psutil

from benchmarks.measure import Row
from benchmarks.processes import running_worker, wait_until
from django_mqlite.models import Queue
from django_mqlite.verbs.workers import registered_workers

SECONDS = 30.0


def run() -> list[Row]:
    Queue.objects.create_queue("noop")
    with running_worker("--queues=noop") as worker:
        wait_until(lambda: bool(registered_workers("default")), worker)
        Event().wait(1.0)
        process = psutil.Process(worker.pid)
        used, written = cost(process)
        Event().wait(SECONDS)
        used_after, written_after = cost(process)
    return [
        {
            "name": f"idle for {SECONDS:.0f} s",
            "CPU %": round((used_after - used) * 100 / SECONDS, 2),
            "bytes written/s": round((written_after - written) / SECONDS),
        }
    ]


def cost(process: psutil.Process) -> tuple[float, int]:
    """Return the CPU seconds and bytes written so far, the worker's own record included."""
    return sum(process.cpu_times()[:2]), process.io_counters().write_chars
