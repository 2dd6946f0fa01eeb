"""What the overview shows: every queue with its depth and pace, every worker that is alive."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from .. import timing
from ..formatting import length
from ..models import Queue
from ..timing import EPOCH, moment
from ..types import QueueOverview, State, WorkerRecord
from ..verbs.workers import live_workers
from .chart import chart
from .queue_page import retention
from .readable import printable
from .words import STATES

COLUMNS = (
    State.ACTIVE,
    State.LOCKED,
    State.SCHEDULED,
    State.DEFERRED,
    State.DEAD_LETTERED,
    State.COMPLETED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many messages of a queue are in one state, and the query of the list that shows them."""

    count: int
    query: str
    is_alarm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue as the overview shows it."""

    name: str
    paused: bool
    served: bool
    depths: Sequence[Depth]
    oldest_due: str | None
    chart: SafeString
    completed: int
    failed: int
    retention: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A live worker as the overview shows it."""

    worker: str
    host: str
    queues: str
    slots: int
    in_flight: int
    seen: str


def overview() -> dict[str, Any]:
    """The context of the overview's tables, as of now."""
    now = timing.now_ms()
    rows = {queue.name: queue for queue in Queue.objects.all()}
    return {
        "columns": [STATES[state] for state in COLUMNS],
        "queues": [
            _queue_row(each, rows[each.stats.queue], now=now)
            for each in Queue.objects.overview()
            if each.stats.queue in rows
        ],
        "workers": [_worker_row(each, now=now) for each in live_workers(Queue.objects.database)],
        "as_of": localtime(moment(now) or EPOCH),
    }


def _queue_row(seen: QueueOverview, queue: Queue, *, now: int) -> QueueRow:
    due = seen.stats.due_since_ms
    return QueueRow(
        name=queue.name,
        paused=seen.stats.paused,
        served=seen.workers > 0,
        depths=[_depth(seen, state) for state in COLUMNS],
        oldest_due=None if due is None else length(max(0, now - due)),
        chart=chart(seen.minutes),
        completed=seen.completed,
        failed=seen.failed,
        retention=retention(queue),
    )


def _depth(seen: QueueOverview, state: State) -> Depth:
    count = seen.stats.counts[state]
    return Depth(
        count=count,
        query=urlencode({"queue": seen.stats.queue, "state": state.value}),
        is_alarm=state == State.DEAD_LETTERED and count > 0,
    )


def _worker_row(worker: WorkerRecord, *, now: int) -> WorkerRow:
    return WorkerRow(
        worker=printable(worker.worker),
        host=printable(worker.host),
        queues=printable(", ".join(worker.queues)),
        slots=worker.slots,
        in_flight=worker.in_flight,
        seen=length(max(0, now - worker.seen_at)),
    )
