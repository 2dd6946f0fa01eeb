"""The tables of the overview: queues with their depths and last hour, and live workers."""

from dataclasses import replace
from typing import Any

from django.template.defaultfilters import filesizeformat
from django.utils.timezone import localtime
from django.utils.translation import gettext

from .. import timing
from ..conf import get_settings
from ..formatting import STATES, format_duration
from ..models import Queue
from ..timing import EPOCH, moment
from ..types import QueueOverview, State, WorkerRecord
from ..verbs.workers import live_workers
from .formatting import chart, printable

COLUMNS = (
    State.ACTIVE,
    State.LOCKED,
    State.SCHEDULED,
    State.DEFERRED,
    State.DEAD_LETTERED,
    State.COMPLETED,
)


def overview() -> dict[str, Any]:
    """Return the context of the overview's tables."""
    now = timing.now_ms()
    queues = {queue.name: queue for queue in Queue.objects.all()}
    return {
        "states": [STATES[state] for state in COLUMNS],
        "rows": [
            _row(queues[overview.stats.queue], overview, now=now)
            for overview in Queue.objects.overview()
            if overview.stats.queue in queues
        ],
        "workers": [
            (_printable_record(worker), format_duration(max(0, now - worker.seen_at)))
            for worker in live_workers(Queue.objects.database)
        ],
        "as_of": localtime(moment(now) or EPOCH),
    }


def _row(queue: Queue, overview: QueueOverview, *, now: int) -> dict[str, Any]:
    due_since = overview.stats.due_since_ms
    return {
        "queue": queue,
        "overview": overview,
        "depths": [(state.value, overview.stats.counts[state]) for state in COLUMNS],
        "oldest_due": None if due_since is None else format_duration(max(0, now - due_since)),
        "chart": chart(overview.minutes),
        "retention": _retention(queue),
    }


def _printable_record(worker: WorkerRecord) -> WorkerRecord:
    return replace(
        worker,
        worker=printable(worker.worker),
        host=printable(worker.host),
        queues=tuple(map(printable, worker.queues)),
    )


def _retention(queue: Queue) -> list[str]:
    """Return the limits for finished messages, from the queue or from the settings."""
    default = get_settings()
    age = queue.dlq_max_age_ms or default.dlq_max_age_ms
    count = queue.dlq_max_count or default.dlq_max_count
    size = queue.dlq_max_bytes or default.dlq_max_bytes
    texts = [
        gettext("completed: %(time)s") % {"time": format_duration(queue.retain_completed_ms)}
        if queue.retain_completed_ms
        else gettext("completed: deleted immediately")
    ]
    if age > 0:
        texts.append(gettext("dead letters: %(time)s") % {"time": format_duration(age)})
    if count > 0:
        texts.append(gettext("dead letters: at most %(count)d") % {"count": count})
    if size > 0:
        texts.append(gettext("dead letters: at most %(size)s") % {"size": filesizeformat(size)})
    return texts
