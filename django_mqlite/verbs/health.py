"""Whether what is due is being consumed."""

from dataclasses import dataclass

from .. import timing
from ..types import QueueStats, WorkerRecord
from .base import get_model
from .database_file import wal_bytes
from .workers import live_workers

LARGE_WAL = 128 * 1024 * 1024
"""Bytes: twice what `journal_size_limit` of sqlite_options() lets a checkpoint leave."""

RESTART_MS = 15_000
"""So long nobody may serve a queue with messages due: a deployment restarts its workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a monitoring system asks for. Ages in seconds, None for nothing there."""

    queue_problems: tuple[str, ...]
    oldest_due_age: float | None
    last_poll_age: float | None
    live_workers: int
    wal_bytes: int

    @property
    def problems(self) -> tuple[str, ...]:
        """Those of the queues, and a write-ahead log that is too large."""
        large = wal_problem(self.wal_bytes)
        return (*self.queue_problems, large) if large else self.queue_problems

    @property
    def healthy(self) -> bool:
        return not self.problems


def wal_problem(size: int) -> str | None:
    """A sentence about a write-ahead log that is not emptied; None for one of ordinary size."""
    return f"the write-ahead log has {size:,} bytes" if size > LARGE_WAL else None


def health(using: str, *, max_age_ms: int) -> Health:
    """Return the state of the queues and their file.

    A message that is due and that nothing serves is a problem, and so is one that has been due for
    too long, whatever its priority, and a write-ahead log that grows. Paused queues are left out:
    somebody wants them to wait.
    """
    now = timing.now_ms()
    workers = [worker for worker in live_workers(using) if worker.queues]
    due = [
        queue
        for queue in get_model("Queue").objects.db_manager(using).stats()
        if queue.due_since_ms is not None and not queue.paused
    ]
    ages = [now - queue.due_since_ms for queue in due if queue.due_since_ms is not None]
    polls = [now - worker.seen_at for worker in workers]
    return Health(
        queue_problems=tuple(_problems(due, workers, now=now, max_age_ms=max_age_ms)),
        oldest_due_age=max(ages) / 1000 if ages else None,
        last_poll_age=min(polls) / 1000 if polls else None,
        live_workers=len(workers),
        wal_bytes=wal_bytes(using),
    )


def _problems(
    due: list[QueueStats], workers: list[WorkerRecord], *, now: int, max_age_ms: int
) -> list[str]:
    problems = []
    for queue in due:
        age = now - (queue.due_since_ms or now)
        served = any(queue.queue in worker.queues for worker in workers)
        if not served and age > min(max_age_ms, RESTART_MS):
            problems.append(f"queue {queue.queue} has messages due and no live worker serves it")
        elif age > max_age_ms:
            problems.append(f"queue {queue.queue} has had a message due for {age / 1000:.0f} s")
    return problems
