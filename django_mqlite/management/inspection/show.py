"""mqlite show: everything that is known of a message."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.exceptions import failures, format_error, is_interruption
from django_mqlite.models import Message
from django_mqlite.types import Explanation, State

from .by_id import add_id, sequence_number
from .documents import document, explained
from .output import Output, cell, iso, lines

HELP = "Show a message: properties, lease, body, failed deliveries, and why it has not run."

FACTS = (
    "queue", "state", "subject", "priority", "group_id", "message_id", "correlation_id",
    "reply_to", "enqueued_at", "visible_at", "expires_at", "delivery_count", "interruptions",
    "locked_by", "locked_until", "finished_at", "dead_letter_reason", "dead_letter_description",
    "content_type",
)  # fmt: skip
MAX_BODY = 4_000


add_arguments = add_id


def run(options: Mapping[str, Any], output: Output) -> None:
    """Everything but the lock token, or what became of a message that is gone."""
    messages = Message.objects.db_manager(options["database"])
    id = sequence_number(messages, options["id"])
    message = messages.using(messages.database).filter(pk=id).first()
    why = messages.explain(id)
    if message is None:
        raise CommandError(explained(id, why))
    output.answer(_document(message, why), "\n".join(_text(message, why)))


def _document(message: Message, why: Explanation) -> dict[str, Any]:
    return {
        **document(message),
        "max_delivery_count": why.facts.get("max_delivery_count"),
        "locked_by": message.locked_by,
        "locked_until": iso(message.locked_until),
        "result": message.result,
        "why": {"code": why.code, "text": why.text, "facts": dict(why.facts)},
    }


def _text(message: Message, why: Explanation) -> Iterator[str]:
    yield explained(message.pk, why)
    for name in FACTS:
        value = getattr(message, name)
        if value not in (None, ""):
            yield f"  {_label(name, message)}: {cell(value)}"
    if isinstance(message.properties, dict):
        for name, value in message.properties.items():
            yield f"  property {cell(name)}: {cell(value)}"
    elif message.properties is not None:
        yield from _block("properties", _pretty(message.properties))
    yield from _body(message)
    if message.result is not None:
        yield from _block("result", _pretty(message.result))
    for error in failures(message.errors):
        yield from _failure(error)


def _label(name: str, message: Message) -> str:
    """The name for people. A completed message remembers its last holder, and has no lease."""
    if name == "locked_by" and message.state == State.COMPLETED:
        return "completed by"
    return name.replace("_", " ")


def _body(message: Message) -> Iterator[str]:
    body = bytes(message.body)
    try:
        text = message.data if isinstance(message.data, str) else _pretty(message.data)
    except (TypeError, ValueError, RecursionError):
        text = body[: MAX_BODY // 3].hex(" ")
    cut = f", cut to {MAX_BODY:,} letters" if len(text) > MAX_BODY else ""
    yield from _block(f"body, {len(body):,} bytes{cut}", text[:MAX_BODY])


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=True)


def _failure(error: Mapping[str, Any]) -> Iterator[str]:
    worker = error.get("worker") or "an unnamed worker"
    ended = "was interrupted" if is_interruption(error) else "failed"
    head = f"delivery {error.get('delivery', '?')} {ended}, {worker}: {format_error(error)}"
    yield from _block(cell(head), str(error.get("traceback") or ""))


def _block(head: str, text: str) -> Iterator[str]:
    yield head + ":" if text else head
    if text:
        yield "\n".join(f"  {line}" for line in lines(text).split("\n"))
