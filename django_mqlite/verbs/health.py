"""The health of the queues: what an operator has to act on, and what to keep an eye on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .. import timing
from ..formatting import format_duration
from ..types import QueueOverview, State, WorkerRecord
from .base import get_model
from .database_file import wal_bytes
from .schedules import readable_records
from .workers import live_workers

LARGE_WAL = 128 * 1024 * 1024
"""Bytes: twice sqlite_options()'s `journal_size_limit`, to which checkpoints truncate the log."""

RESTART_MS = 15_000
"""How long due messages may have no worker, for example during a deployment."""

MAX_DUE_AGE_MS = 60_000
"""How long messages may be due, unless the caller passes another limit."""

UNSERVED, LATE, STUCK = "unserved", "late", "stuck"
OVERDUE, FAILING = "overdue", "failing"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProblem:
    """A problem of a queue. `code` is UNSERVED, LATE or STUCK; `text` is for people."""

    queue: str
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleProblem:
    """A problem of a recurring schedule. `code` is OVERDUE or FAILING; `text` is for people."""

    schedule: str
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Facts for a monitoring system. Ages are in seconds, None without a due message or worker.

    The last four are no problems in themselves. `retrying` messages are scheduled after a failed
    delivery, `recent_dead_letters` died in the last hour, and `busy_queues` have due messages that
    wait for a slot. Paused queues are included only in `retrying` and `recent_dead_letters`.
    """

    queue_problems: tuple[QueueProblem, ...]
    schedule_problems: tuple[ScheduleProblem, ...]
    oldest_due_age: float | None
    last_poll_age: float | None
    live_workers: int
    wal_bytes: int
    retrying: int
    recent_dead_letters: int
    busy_queues: tuple[str, ...]
    paused_schedules: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems of the queues and schedules, and a write-ahead log that is too large."""
        texts = [problem.text for problem in self.queue_problems]
        texts += [problem.text for problem in self.schedule_problems]
        return (*texts, *wal_problems(self.wal_bytes))

    @property
    def healthy(self) -> bool:
        return not self.problems


def health(using: str, *, max_age_ms: int = MAX_DUE_AGE_MS) -> Health:
    """Return the health of the queues and their file. Reads only.

    Problems are: due messages that no worker serves, messages of any priority that have been due
    for longer than `max_age_ms`, messages that have waited as long behind the head of their group
    while nothing works on the head, recurring schedules that nothing dispatches or whose message
    cannot be enqueued, and a large write-ahead log. Paused queues and schedules are ignored,
    because they are meant to wait.
    """
    workers = live_workers(using)
    overviews = get_model("Queue").objects.db_manager(using).overview(workers)
    return health_of(overviews, workers, using=using, max_age_ms=max_age_ms)


def health_of(
    overviews: Sequence[QueueOverview],
    workers: Iterable[WorkerRecord],
    *,
    using: str,
    max_age_ms: int = MAX_DUE_AGE_MS,
) -> Health:
    """Return the health of these queues and their file, as health() does."""
    now = timing.now_ms()
    active = [overview for overview in overviews if not overview.stats.paused]
    due_since = [at for overview in active if (at := overview.stats.due_since_ms) is not None]
    schedules, paused = _schedules(using, max_age_ms=max_age_ms, now=now)
    polls = [now - worker.seen_at for worker in workers if worker.queues]
    return Health(
        queue_problems=tuple(_problems(active, max_age_ms=max_age_ms, now=now)),
        schedule_problems=tuple(schedules),
        oldest_due_age=(now - min(due_since)) / 1000 if due_since else None,
        last_poll_age=min(polls) / 1000 if polls else None,
        live_workers=len(polls),
        wal_bytes=wal_bytes(using),
        retrying=sum(overview.stats.retrying for overview in overviews),
        recent_dead_letters=sum(overview.stats.recent_dead_letters for overview in overviews),
        busy_queues=tuple(overview.stats.queue for overview in active if overview.is_busy),
        paused_schedules=tuple(paused),
    )


def _problems(
    overviews: Iterable[QueueOverview], *, max_age_ms: int, now: int
) -> Iterator[QueueProblem]:
    for overview in overviews:
        queue = overview.stats.queue
        if problem := _due_problem(overview, max_age_ms=max_age_ms, now=now):
            code, text = problem
            yield QueueProblem(queue=queue, code=code, text=f"Queue {queue} {text}")
        if text := _stuck_problem(overview, max_age_ms=max_age_ms, now=now):
            yield QueueProblem(queue=queue, code=STUCK, text=f"Queue {queue} {text}")


def _due_problem(overview: QueueOverview, *, max_age_ms: int, now: int) -> tuple[str, str] | None:
    if overview.stats.due_since_ms is None:
        return None
    age = now - overview.stats.due_since_ms
    if overview.workers == 0 and age > min(max_age_ms, RESTART_MS):
        return UNSERVED, "has due messages, but no live worker serves it."
    if age <= max_age_ms:
        return None
    busy = f"; all {overview.slots} slots of its workers are busy" if overview.is_busy else ""
    return LATE, f"has had a due message for {age / 1000:.0f} s{busy}."


def _stuck_problem(overview: QueueOverview, *, max_age_ms: int, now: int) -> str:
    """Return a text if messages wait for a head that no worker can take, or ""."""
    head = overview.head
    if head is None or now - head.blocked_since_ms <= max_age_ms:
        return ""
    if head.state == State.DEFERRED:
        return f"has messages that wait for #{head.id}, which is deferred."
    if head.state == State.SCHEDULED and head.visible_at_ms > now:
        due = format_duration(head.visible_at_ms - now)
        action = "retried" if head.is_retry else "due"
        return f"has messages that wait for #{head.id}, which is {action} in {due}."
    return ""


def _schedules(using: str, *, max_age_ms: int, now: int) -> tuple[list[ScheduleProblem], list[str]]:
    """Return the problems of the schedules, and the names of those that are paused."""
    problems, paused = [], []
    for schedule, record in readable_records(using):
        due = schedule.ticks.after(record.position)
        if record.paused:
            paused.append(schedule.name)
        elif record.error:
            text = f"Schedule {schedule.name} cannot enqueue its message: {record.error}"
            problems.append(ScheduleProblem(schedule=schedule.name, code=FAILING, text=text))
        elif due is not None and now - due > min(max_age_ms, RESTART_MS):
            text = (
                f"Schedule {schedule.name} has been due for {format_duration(now - due)}, and no "
                "worker or reaper has dispatched it."
            )
            problems.append(ScheduleProblem(schedule=schedule.name, code=OVERDUE, text=text))
    return problems, paused


def wal_problems(size: int) -> Iterator[str]:
    """Yield the problem of a write-ahead log that is too large."""
    if size > LARGE_WAL:
        yield f"The write-ahead log is {size:,} bytes long."
