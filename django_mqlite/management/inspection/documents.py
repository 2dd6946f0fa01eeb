"""A message in JSON, with stable keys."""

from base64 import b64encode
from datetime import datetime
from typing import Any

from django_mqlite.message import encode_json
from django_mqlite.models import Message
from django_mqlite.timing import moment
from django_mqlite.types import Explanation

from .output import iso, lines


def document(message: Message) -> dict[str, Any]:
    """Everything but the lock token: who has it can settle the message."""
    return {
        "id": message.pk,
        "queue": message.queue,
        "state": message.state,
        "priority": message.priority,
        "blocked": message.blocked,
        "delivery_count": message.delivery_count,
        "interruptions": message.interruptions,
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
        "errors": _errors(message.errors or []),
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
    }


SUMMARY = (
    "id", "queue", "state", "priority", "group_id", "subject", "message_id", "correlation_id",
    "delivery_count", "enqueued_at", "visible_at", "locked_until", "finished_at",
    "dead_letter_reason",
)  # fmt: skip
"""The columns that a list tells of; none that could be long."""


def summary(message: Message) -> dict[str, Any]:
    """Return the fields that a list shows of a message."""
    values = {name: getattr(message, name) for name in SUMMARY}
    return {name: iso(v) if isinstance(v, datetime) else v for name, v in values.items()}


def explained(id: int, why: Explanation) -> str:
    """The sentence with its subject; of one that never was it names the number itself."""
    return lines(why.text if why.code == "never_enqueued" else f"#{id}: {why.text}")


ERROR_TIMES = ("started_at", "failed_at")


def _errors(stored: Any) -> Any:
    """Return the stored errors with ISO times; leave alone what another program wrote."""
    if not isinstance(stored, list):
        return stored
    return [_error(error) if isinstance(error, dict) else error for error in stored]


def _error(stored: dict[str, Any]) -> dict[str, Any]:
    times = {name: stored[name] for name in ERROR_TIMES if isinstance(stored.get(name), int)}
    return stored | {name: iso(moment(epoch_ms)) for name, epoch_ms in times.items()}


def _body(message: Message) -> dict[str, Any]:
    """`data` as the content type says, or, where that is bytes or untrue, `body_base64`."""
    try:
        data = message.data
        encode_json(data, "data")  # json.loads takes NaN, JSON does not
    except (TypeError, ValueError, RecursionError):
        return {"data": None, "body_base64": b64encode(message.body).decode()}
    return {"data": data, "body_base64": None}
