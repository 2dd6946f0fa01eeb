"""mqlite stats: how deep each queue is, who serves it, and its last hour."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_mqlite.management.arguments import interval
from django_mqlite.managers import QueueManager
from django_mqlite.models import Queue
from django_mqlite.timing import iso, moment
from django_mqlite.types import QueueOverview, State

from .live import repeat
from .output import Output

HELP = "Count the messages of every queue by state; its workers, and its last hour."
HEADS = (
    "queue", "active", "locked", "deferred", "scheduled", "completed", "dead",
    "due since", "workers", "done/h", "failed/h", "paused",
)  # fmt: skip
CLEAR = "\x1b[2J\x1b[H"


def add_arguments(parser: ArgumentParser) -> None:
    """[--watch [S]]"""
    parser.add_argument(
        "--watch",
        type=interval,
        nargs="?",
        const=2.0,
        metavar="S",
        help="again every S seconds (2), until Ctrl-C",
    )


def run(options: Mapping[str, Any], output: Output) -> None:
    """One row per queue, once or again and again."""
    manager = Queue.objects.db_manager(options["database"])
    if options["watch"] is None:
        _show(manager, output)
    else:
        repeat(lambda: _show_again(manager, output), every=options["watch"])


def _show_again(manager: QueueManager[Queue], output: Output) -> None:
    if output.as_json:
        output.line(_document(manager.overview()), "")
        return
    if output.stdout.isatty():
        output.stdout.write(CLEAR, ending="")
    _show(manager, output)
    output.stdout.flush()


def _show(manager: QueueManager[Queue], output: Output) -> None:
    queues = manager.overview()
    output.answer_table(
        _document(queues),
        HEADS,
        [_row(queue) for queue in queues],
        empty="There are no queues. Declare them in MQLITE['QUEUES'] and run `manage.py migrate`.",
    )


def _document(queues: list[QueueOverview]) -> dict[str, Any]:
    return {
        "queues": [
            {
                "queue": queue.stats.queue,
                "paused": queue.stats.paused,
                "counts": {state.value: queue.stats.counts[state] for state in State},
                "due_since": iso(queue.stats.due_since_ms),
                "workers": queue.workers,
                "slots": queue.slots,
                "completed_last_hour": queue.completed,
                "failed_last_hour": queue.failed,
            }
            for queue in queues
        ]
    }


def _row(queue: QueueOverview) -> list[Any]:
    stats = queue.stats
    return [
        stats.queue,
        *(stats.counts[state] for state in State),
        moment(stats.due_since_ms or 0),
        queue.workers,
        queue.completed,
        queue.failed,
        stats.paused,
    ]
