"""The command for the queues at a glance: stats."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from django_mqlite import timing
from django_mqlite.formatting import format_duration, format_limits
from django_mqlite.models import Queue
from django_mqlite.timing import iso
from django_mqlite.types import DeliveryTimes, QueueOverview, State
from django_mqlite.verbs.health import LATE, STUCK, UNSERVED, health_of

from .arguments import Options, Subcommand, interval
from .output import ERROR, NO_QUEUES, WARNING, Marked, Output, age, repeat
from .table import Column, text_column

COLUMNS: tuple[Column | str, ...] = (
    "queue", "active", "blocked", "locked", "scheduled", "retrying", "deferred", "completed",
    "dead-lettered", "oldest due", Column("workers", is_kept=True), "busy", "done/h", "failed/h",
    "wait", "run", text_column("note"),
)  # fmt: skip
CLEAR_SCREEN = "\x1b[2J\x1b[H"


def _add_stats_arguments(parser: ArgumentParser) -> None:
    text = "refresh every S seconds (2) until Ctrl-C"
    parser.add_argument("--watch", type=interval, nargs="?", const=2.0, metavar="S", help=text)


def _stats(options: Options, output: Output) -> None:
    manager = Queue.objects.db_manager(options["database"])

    def show() -> None:
        queues = manager.overview()
        document = {"queues": [_queue_document(queue) for queue in queues]}
        if output.as_json and options["watch"]:
            output.line(document, "")
        else:
            rows = list(_rows(queues, manager.database))
            output.answer_table(document, COLUMNS, rows, empty=NO_QUEUES, parts=2)

    def refresh() -> None:
        if output.stdout.isatty() and not output.as_json:
            output.stdout.write(CLEAR_SCREEN, ending="")
        show()
        output.stdout.flush()

    if options["watch"] is None:
        show()
    else:
        repeat(refresh, every=options["watch"])


def _queue_document(queue: QueueOverview) -> dict[str, Any]:
    return {
        "queue": queue.stats.queue,
        "paused": queue.stats.paused,
        "counts": {state.value: queue.stats.counts[state] for state in State},
        "retrying": queue.stats.retrying,
        "blocked": queue.stats.blocked,
        "blocked_by": queue.head.id if queue.head else None,
        "due_since": iso(queue.stats.due_since_ms),
        "workers": queue.workers,
        "slots": queue.slots,
        "busy": queue.busy,
        "completed_last_hour": queue.completed,
        "failed_last_hour": queue.failed,
        "dead_letters_last_hour": queue.stats.recent_dead_letters,
        "limits": queue.stats.limits.facts,
        "wait": _seconds(queue.wait),
        "run": _seconds(queue.run),
    }


def _seconds(times: DeliveryTimes | None) -> dict[str, float] | None:
    """Return the median and the 95th percentile in seconds."""
    if times is None:
        return None
    return {"median": times.median_ms / 1000, "p95": times.p95_ms / 1000}


def _rows(queues: Sequence[QueueOverview], using: str) -> Iterator[list[Any]]:
    problems = health_of(queues, (), using=using).queue_problems
    for queue in queues:
        name = queue.stats.queue
        yield _row(queue, {problem.code for problem in problems if problem.queue == name})


def _row(queue: QueueOverview, problems: AbstractSet[str]) -> list[Any]:
    stats, counts = queue.stats, queue.stats.counts
    is_late = not problems.isdisjoint((LATE, UNSERVED))
    busy = f"{queue.busy}/{queue.slots}" if queue.slots else None
    return [
        stats.queue,
        counts[State.ACTIVE],
        _marked(stats.blocked, ERROR, STUCK in problems),
        counts[State.LOCKED],
        counts[State.SCHEDULED],
        _marked(stats.retrying, WARNING, stats.retrying > 0),
        counts[State.DEFERRED],
        counts[State.COMPLETED],
        _marked(counts[State.DEAD_LETTERED], ERROR, counts[State.DEAD_LETTERED] > 0),
        _marked(age(stats.due_since_ms), ERROR, is_late),
        _marked(queue.workers, ERROR, UNSERVED in problems),
        _marked(busy, WARNING, queue.is_busy),
        queue.completed,
        _marked(queue.failed, WARNING, queue.failed > 0),
        _median(queue.wait),
        _median(queue.run),
        _marked(_note(queue), WARNING, stats.paused),
    ]


def _marked(value: Any, level: str, is_wrong: bool) -> Marked:
    return Marked(value, level if is_wrong else "")


def _median(times: DeliveryTimes | None) -> str | None:
    return None if times is None else format_duration(times.median_ms)


def _note(queue: QueueOverview) -> str | None:
    """Return whether the queue is paused, what its groups wait for, and the use of its limits."""
    notes = ["paused"] if queue.stats.paused else []
    if queue.head:
        notes.append(f"blocked by #{queue.head.id}")
    return ", ".join([*notes, *format_limits(queue.stats.limits, now=timing.now_ms())]) or None


# fmt: off
SUBCOMMANDS = (
    Subcommand("stats", "Count each queue's messages by state; show its workers and last hour.",
        _stats, _add_stats_arguments, "mqlite stats --watch"),
)
# fmt: on
