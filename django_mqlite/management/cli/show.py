"""Commands about a single message: show and why."""

import json
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from django_mqlite.arguments import MAX_TEXT
from django_mqlite.exceptions import MqliteError, format_error, is_interruption, stored_failures
from django_mqlite.formatting import format_progress, state_label
from django_mqlite.models import Message, Schedule
from django_mqlite.types import Explanation, ScheduleStatus, State

from . import schedules
from .arguments import Options, Subcommand, add_id, sequence_number
from .messages import document
from .output import Output, cell, lines

MAX_BODY = 4_000
FACTS = (
    "queue", "state", "subject", "priority", "group_id", "message_id", "unique_key",
    "correlation_id", "reply_to", "enqueued_at", "visible_at", "expires_at", "delivery_count",
    "interruptions", "uncounted_retries", "locked_by", "locked_until", "progress", "finished_at",
    "dead_letter_reason", "dead_letter_description", "content_type",
)  # fmt: skip


def _show(options: Options, output: Output) -> None:
    messages = Message.objects.db_manager(options["database"])
    id = sequence_number(messages, options["id"])
    message = messages.using(messages.database).filter(pk=id).first()
    explanation = messages.explain(id)
    if message is None:
        raise CommandError(_explained(id, explanation))
    full_document = {
        **document(message),
        "max_delivery_count": explanation.facts.get("max_delivery_count"),
        "locked_by": message.locked_by,
        "locked_until": message.locked_until,
        "progress": message.progress,
        "result": message.result,
        "why": {
            "code": explanation.code,
            "text": explanation.text,
            "facts": dict(explanation.facts),
        },
    }
    output.answer(full_document, "\n".join(_full_text(message, explanation)))


def _add_why_arguments(parser: ArgumentParser) -> None:
    text = "sequence number, message id, or name of a recurring schedule"
    parser.add_argument("id", metavar="ID", help=text)


def _why(options: Options, output: Output) -> None:
    if (status := _schedule(options)) is not None:
        why = status.explanation
        facts = {"code": why.code, "text": why.text, "facts": dict(why.facts)}
        output.answer({"schedule": status.name, **facts}, schedules.explained(status))
        return
    messages = Message.objects.db_manager(options["database"])
    other_names = ", and no recurring schedule has this name"
    id = sequence_number(messages, options["id"], other_names=other_names)
    explanation = messages.explain(id)
    output.answer(
        {
            "id": id,
            "code": explanation.code,
            "text": explanation.text,
            "facts": dict(explanation.facts),
        },
        _explained(id, explanation),
    )


def _schedule(options: Options) -> ScheduleStatus | None:
    """Return the schedule of this name, unless a message has the name as its id."""
    name, using = options["id"], options["database"]
    if (name.isascii() and name.isdecimal()) or len(name) > MAX_TEXT:
        return None
    messages = Message.objects.db_manager(using)
    if messages.using(messages.database).filter(message_id=name).exists():
        return None
    with suppress(MqliteError, ImproperlyConfigured, ValueError):
        return Schedule.objects.db_manager(using).status(name)
    return None


def _explained(id: int, explanation: Explanation) -> str:
    """Return the explanation with its subject, unless it names the message itself."""
    return lines(
        explanation.text if explanation.code == "never_enqueued" else f"#{id}: {explanation.text}"
    )


def _full_text(message: Message, explanation: Explanation) -> Iterator[str]:
    yield _explained(message.pk, explanation)
    for name in FACTS:
        value = getattr(message, name)
        if value not in (None, ""):
            yield f"  {_fact_label(name, message)}: {cell(_fact_text(name, value))}"
    if isinstance(message.properties, dict):
        for name, value in message.properties.items():
            yield f"  property {cell(name)}: {cell(value)}"
    elif message.properties is not None:
        yield from _block("properties", _pretty(message.properties))
    yield from _body_text(message)
    if message.result is not None:
        yield from _block("result", _pretty(message.result))
    for error in stored_failures(message.errors):
        yield from _failure(error)


def _fact_text(name: str, value: Any) -> Any:
    match name:
        case "state":
            return state_label(value)
        case "progress":
            return format_progress(value)
        case _:
            return value


def _fact_label(name: str, message: Message) -> str:
    """Return the label of a column; a completed message has no lease, but keeps its last holder."""
    if name == "locked_by" and message.state == State.COMPLETED:
        return "completed by"
    return name.replace("_", " ")


def _body_text(message: Message) -> Iterator[str]:
    body = bytes(message.body)
    try:
        text = message.data if isinstance(message.data, str) else _pretty(message.data)
    except (TypeError, ValueError, RecursionError):
        text = body[: MAX_BODY // 3].hex(" ")
    cut = f", truncated to {MAX_BODY:,} characters" if len(text) > MAX_BODY else ""
    yield from _block(f"body, {len(body):,} bytes{cut}", text[:MAX_BODY])


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=True)


def _failure(error: Mapping[str, Any]) -> Iterator[str]:
    worker = error.get("worker") or "an unnamed worker"
    ended = "was interrupted" if is_interruption(error) else "failed"
    heading = f"delivery {error.get('delivery', '?')} {ended}, {worker}: {format_error(error)}"
    yield from _block(cell(heading), str(error.get("traceback") or ""))


def _block(heading: str, text: str) -> Iterator[str]:
    yield heading + ":" if text else heading
    if text:
        yield "\n".join(f"  {line}" for line in lines(text).split("\n"))


# fmt: off
SUBCOMMANDS = (
    Subcommand("show", "Show everything about a message, and why it has not run.",
        _show, add_id, "mqlite show 17"),
    Subcommand("why", "Explain why a message or a recurring schedule has not run.",
        _why, _add_why_arguments, "mqlite why 17"),
)
# fmt: on
