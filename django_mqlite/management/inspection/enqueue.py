"""mqlite enqueue: a message by hand."""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.models import Message

from .arguments import age
from .output import Output, iso

HELP = "Put a message into a queue."


def add_arguments(parser: ArgumentParser) -> None:
    """QUEUE DATA [--text] and the options of enqueue()"""
    add = parser.add_argument
    add("queue", metavar="QUEUE")
    add("data", metavar="DATA", help="JSON, or with --text a text; - reads it from stdin")
    add("--text", action="store_true", help="DATA is a text and no JSON")
    add("--delay", type=age, metavar="AGE", help="deliver it later: 90s, 15m, 1h, 2d")
    add("--ttl", type=age, metavar="AGE", help="how long it is worth delivering")
    add("--priority", type=int, default=0, metavar="N", help="higher goes first (0)")
    add("--group", dest="group_id", metavar="ID", help="keeps its place in this group")
    add("--subject", metavar="TEXT")
    add("--message-id", metavar="ID")
    add("--correlation-id", metavar="ID")
    add("--reply-to", metavar="NAME")
    add(
        "--property",
        dest="properties",
        type=_property,
        action="append",
        metavar="NAME=VALUE",
        help="as often as needed",
    )


OPTIONS = (
    "delay", "ttl", "priority", "group_id", "subject", "message_id", "correlation_id", "reply_to",
)  # fmt: skip


def run(options: Mapping[str, Any], output: Output) -> None:
    """The id of the message, also where the queue's window has known it already."""
    data = sys.stdin.read() if options["data"] == "-" else options["data"]
    try:
        message = Message.objects.db_manager(options["database"]).enqueue(
            options["queue"],
            data if options["text"] else json.loads(data),
            properties=dict(options["properties"] or ()) or None,
            **{name: options[name] for name in OPTIONS},
        )
    except json.JSONDecodeError as error:
        raise CommandError(f"DATA is no JSON: {error}. A text needs --text.") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise CommandError(str(error)) from error
    _answer(message, output)


def _answer(message: Message, output: Output) -> None:
    said = f"#{message.pk} of queue {message.queue}"
    output.answer(
        {
            "id": message.pk,
            "queue": message.queue,
            "duplicate": message.duplicate,
            "visible_at": None if message.duplicate else iso(message.visible_at),
        },
        f"Known already as {said}" if message.duplicate else f"Enqueued as {said}",
    )


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
