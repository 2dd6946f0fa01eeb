"""The shared part of pause and resume."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_mqlite.models import Queue

from .output import Output


def add_queues(parser: ArgumentParser) -> None:
    """QUEUE …"""
    parser.add_argument("queues", nargs="+", metavar="QUEUE")


def set_paused(options: Mapping[str, Any], output: Output, *, paused: bool) -> None:
    """Pause or resume the queues named, all or, if one is unknown, none."""
    manager = Queue.objects.db_manager(options["database"])
    queues = [manager.named(name) for name in dict.fromkeys(options["queues"])]
    changed = {queue.name: manager.set_paused(queue, paused) for queue in queues}
    verb = "paused" if paused else "resumed"
    output.answer(
        {
            "queues": [
                {"queue": name, "paused": paused, "changed": did} for name, did in changed.items()
            ]
        },
        "\n".join(
            f"Queue {name}: {verb}" if did else f"Queue {name}: was {verb} already"
            for name, did in changed.items()
        ),
    )
