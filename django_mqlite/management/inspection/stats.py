"""mqlite stats: how deep each queue is."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_mqlite.fields import moment
from django_mqlite.models import Queue
from django_mqlite.types import QueueStats, State

from .output import Output, iso

HELP = "Count the messages of every queue by state."
HEADS = (
    "queue", "active", "locked", "deferred", "scheduled", "completed", "dead",
    "due since", "paused",
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    """None of its own."""


def run(options: Mapping[str, Any], output: Output) -> None:
    """One row per queue."""
    queues = Queue.objects.db_manager(options["database"]).stats()
    output.answer_table(
        {"queues": [_document(queue) for queue in queues]},
        HEADS,
        [_row(queue) for queue in queues],
        empty="There are no queues. Declare them in MQLITE['QUEUES'] and run `manage.py migrate`.",
    )


def _document(stats: QueueStats) -> dict[str, Any]:
    return {
        "queue": stats.queue,
        "paused": stats.paused,
        "counts": {state.value: stats.counts[state] for state in State},
        "due_since": iso(_due_since(stats)),
    }


def _row(stats: QueueStats) -> list[Any]:
    counts = (stats.counts[state] for state in State)
    return [stats.queue, *counts, _due_since(stats), stats.paused]


def _due_since(stats: QueueStats) -> datetime | None:
    return moment(stats.due_since_ms or 0)
