"""mqlite peek: the next messages, or the dead letters, of a queue."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_mqlite.exceptions import failures
from django_mqlite.management.arguments import count
from django_mqlite.models import DeadLetter, Message

from .documents import document
from .output import Output, beginning, shortened

HELP = "Show the next messages of a queue, or its dead letters, and leave them alone."

HEADS = ("id", "priority", "group", "waits", "subject", "deliveries", "enqueued", "body")
DEAD_HEADS = ("id", "reason", "description", "subject", "deliveries", "died", "last error")


def add_arguments(parser: ArgumentParser) -> None:
    """QUEUE [--dead] [--limit N]"""
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("--dead", action="store_true", help="the dead letters, oldest death first")
    parser.add_argument("--limit", type=count, default=10, metavar="N", help="at most so many (10)")


def run(options: Mapping[str, Any], output: Output) -> None:
    """One row per message."""
    model: type[Message] = DeadLetter if options["dead"] else Message
    messages = model.objects.db_manager(options["database"]).peek(
        options["queue"], limit=options["limit"]
    )
    kind = "dead letters" if options["dead"] else "messages to claim"
    output.answer_table(
        {"queue": options["queue"], "messages": [document(message) for message in messages]},
        DEAD_HEADS if options["dead"] else HEADS,
        [_dead_row(each) if options["dead"] else _row(each) for each in messages],
        empty=f"Queue {options['queue']} has no {kind}.",
    )


def _row(message: Message) -> list[Any]:
    return [
        message.pk,
        message.priority,
        message.group_id,
        message.blocked,
        shortened(message.subject),
        message.delivery_count,
        message.enqueued_at,
        beginning(message.body),
    ]


def _dead_row(message: Message) -> list[Any]:
    last_error = failures(message.errors)[-1].get("message") if message.errors else None
    return [
        message.pk,
        message.dead_letter_reason,
        shortened(message.dead_letter_description),
        shortened(message.subject),
        message.delivery_count,
        message.finished_at,
        shortened(last_error),
    ]
