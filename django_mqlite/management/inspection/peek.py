"""mqlite peek: the next messages, or the dead letters, of a queue."""

from argparse import ArgumentParser
from base64 import b64encode
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from django_mqlite import content
from django_mqlite.models import DeadLetter, Message

from .arguments import count
from .output import Output, iso

HELP = "Show the next messages of a queue, or its dead letters, and leave them alone."
PREVIEW = 50

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
        {"queue": options["queue"], "messages": [_document(message) for message in messages]},
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
        _short(message.subject),
        message.delivery_count,
        message.enqueued_at,
        _short(bytes(message.body[:PREVIEW]).decode(errors="replace")),
    ]


def _dead_row(message: Message) -> list[Any]:
    last_error = message.errors[-1].get("message") if message.errors else None
    return [
        message.pk,
        message.dead_letter_reason,
        _short(message.dead_letter_description),
        _short(message.subject),
        message.delivery_count,
        message.finished_at,
        _short(last_error),
    ]


def _short(text: str | None) -> str | None:
    return shorten(text, PREVIEW, placeholder=" …") if text else text


def _document(message: Message) -> dict[str, Any]:
    """Everything but the lock token: who has it can settle the message."""
    return {
        "id": message.pk,
        "queue": message.queue,
        "state": message.state,
        "priority": message.priority,
        "blocked": message.blocked,
        "delivery_count": message.delivery_count,
        "enqueued_at": iso(message.enqueued_at),
        "visible_at": iso(message.visible_at),
        "expires_at": iso(message.expires_at),
        "finished_at": iso(message.finished_at),
        "message_id": message.message_id,
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "group_id": message.group_id,
        "subject": message.subject,
        "content_type": message.content_type,
        "properties": message.properties,
        **_body(message),
        "errors": message.errors or [],
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
    }


def _body(message: Message) -> dict[str, Any]:
    """`data` as the content type says, or, where that is bytes or untrue, `body_base64`."""
    try:
        data = message.data
        content.encode_json(data, "data")  # json.loads takes NaN, JSON does not
    except (TypeError, ValueError, RecursionError):
        return {"data": None, "body_base64": b64encode(message.body).decode()}
    return {"data": data, "body_base64": None}
