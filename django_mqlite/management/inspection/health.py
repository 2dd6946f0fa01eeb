"""mqlite health: whether what is due is being consumed, for a monitoring system."""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_mqlite.checks import queue_alias
from django_mqlite.doctor import Health, health
from django_mqlite.management.arguments import seconds
from django_mqlite.timing import milliseconds

from .output import Output

HELP = "Say whether what is due is being consumed; exit code 1 if not."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--max-age",
        type=seconds,
        default=60.0,
        metavar="S",
        help="seconds a message may have been due (60)",
    )


def run(options: Mapping[str, Any], output: Output) -> None:
    """The facts, and exit code 1 where there is a problem."""
    using = options["database"] or queue_alias()
    found = health(using, max_age_ms=milliseconds(options["max_age"], "--max-age"))
    document = {
        "healthy": found.healthy,
        "problems": found.problems,
        "oldest_due_age": found.oldest_due_age,
        "last_poll_age": found.last_poll_age,
        "live_workers": found.live_workers,
        "wal_bytes": found.wal_bytes,
    }
    output.answer(document, _text(found))
    if not found.healthy:
        sys.exit(1)


def _text(found: Health) -> str:
    facts = [
        f"oldest due message: {_age(found.oldest_due_age)}",
        f"last poll of a worker: {_age(found.last_poll_age)}",
        f"live workers: {found.live_workers}",
        f"write-ahead log: {found.wal_bytes:,} bytes",
    ]
    problems = [f"PROBLEM: {problem}" for problem in found.problems] or ["healthy"]
    return "\n".join([*problems, *facts])


def _age(seconds: float | None) -> str:
    return "none" if seconds is None else f"{seconds:.1f} s ago"
