"""The subcommands of `manage.py mqlite`: one entry each in a table."""

from . import act, delete, file, inspect, keys, queues, schedules, show, stats, worker
from .arguments import Subcommand

SUBCOMMANDS: dict[str, Subcommand] = {
    subcommand.name: subcommand
    for subcommand in (
        *stats.SUBCOMMANDS,
        *inspect.SUBCOMMANDS,
        *show.SUBCOMMANDS,
        *act.SUBCOMMANDS,
        *delete.SUBCOMMANDS,
        *queues.SUBCOMMANDS,
        *schedules.SUBCOMMANDS,
        *keys.SUBCOMMANDS,
        *file.SUBCOMMANDS,
        *worker.SUBCOMMANDS,
    )
}
GROUPS = {
    "Inspect": (
        "stats", "queues", "workers", "subscriptions", "list", "errors", "show", "why", "peek",
        "tail",
    ),
    "Act on messages": (
        "enqueue", "publish", "redrive", "purge", "cancel", "release", "run-now", "discard",
        "activate", "empty", "prune",
    ),
    "Configure queues, topics and access": (
        "pause", "resume", "subscribe", "unsubscribe", "schedules", "keys",
    ),
    "Check and maintain the file": ("health", "doctor", "backup", "vacuum"),
    "Run": ("worker",),
}  # fmt: skip
"""The names of the subcommands, under the headings of `manage.py mqlite --help`."""
