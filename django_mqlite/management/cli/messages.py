"""Messages as JSON documents, and as rows of a table."""

from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any

from django_mqlite.exceptions import stored_failures
from django_mqlite.formatting import short_error, state_label
from django_mqlite.message import encode_json
from django_mqlite.models import Message
from django_mqlite.timing import iso
from django_mqlite.types import State

from .output import ERROR, MAX_CAUSE, WARNING, Marked, age, beginning, shortened
from .table import Column

# JSON

DOCUMENT = (
    "queue", "state", "priority", "blocked", "delivery_count", "interruptions",
    "uncounted_retries", "enqueued_at", "visible_at", "expires_at", "finished_at", "message_id",
    "unique_key", "correlation_id", "reply_to", "group_id", "subject", "content_type", "properties",
)  # fmt: skip
SUMMARY = (
    "id", "queue", "state", "priority", "blocked", "group_id", "subject", "message_id",
    "correlation_id", "delivery_count", "enqueued_at", "visible_at", "locked_until", "finished_at",
    "dead_letter_reason", "error_class",
)  # fmt: skip
"""The columns that a list reads; none of them can be long."""
ERROR_TIMES = ("started_at", "failed_at")


def document(message: Message) -> dict[str, Any]:
    """Return a message as JSON, without the lock token, which grants the right to settle it."""
    return {
        "id": message.pk,
        **{name: getattr(message, name) for name in DOCUMENT},
        **_body_document(message),
        "errors": _errors(message.errors or []),
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
        "error_class": message.error_class,
    }


def _body_document(message: Message) -> dict[str, Any]:
    """Return `data`, or `body_base64` if the body is bytes or does not match its content type."""
    try:
        data = message.data
        encode_json(data, "data")  # json.loads() accepts NaN, which is not JSON
    except (TypeError, ValueError, RecursionError):
        return {"data": None, "body_base64": b64encode(message.body).decode()}
    return {"data": data, "body_base64": None}


def _errors(stored: Any) -> Any:
    """Return the stored errors with ISO times; keep values from other programs unchanged."""
    if not isinstance(stored, list):
        return stored
    return [_error(error) if isinstance(error, dict) else error for error in stored]


def _error(stored: dict[str, Any]) -> dict[str, Any]:
    times = {name: stored[name] for name in ERROR_TIMES if isinstance(stored.get(name), int)}
    return stored | {name: iso(epoch_ms) for name, epoch_ms in times.items()}


# Tables

GENERAL_REASONS = ("MaxDeliveryCountExceeded", "NotRetried")
"""Reasons for which the last error says more."""


Value = Callable[[Message], Any]
"""Return a value of a message for a table; long texts are shortened."""


def _marked_state(message: Message) -> Marked:
    """Return the state in its color; with the views on it: retrying, and blocked."""
    match message.state:
        case State.DEAD_LETTERED:
            return Marked(state_label(message.state), ERROR)
        case State.SCHEDULED if message.delivery_count:
            return Marked("retrying", WARNING)
        case State.ACTIVE if message.blocked:
            return Marked("blocked", "")
    return Marked(state_label(message.state), "")


def _cause(message: Message, description: str | None, error: str | None) -> str:
    """Return why a message died or failed: its reason, unless the error says more."""
    reason = message.dead_letter_reason
    if error and reason in GENERAL_REASONS:
        return error
    death = ": ".join(filter(None, (reason, description)))
    return ", ".join(filter(None, (death, error)))


def _full_cause(message: Message) -> str | None:
    recorded = stored_failures(message.errors)
    text = recorded[-1].get("message") if recorded else None
    error = short_error(message.error_class, text)
    return shortened(_cause(message, message.dead_letter_description, error), MAX_CAUSE)


COLUMNS: dict[str, Value] = {
    "id": lambda message: str(message.pk),
    "state": _marked_state,
    "priority": lambda message: message.priority,
    "blocked": lambda message: message.blocked,
    "age": lambda message: age(message.enqueued_at),
    "dead for": lambda message: age(message.finished_at),
    "due": lambda message: age(message.visible_at) if message.state == State.SCHEDULED else None,
    "tries": lambda message: message.delivery_count,
}
TEXTS: dict[str, Value] = {
    "queue": lambda message: message.queue,
    "group": lambda message: shortened(message.group_id),
    "subject": lambda message: shortened(message.subject),
    "error": lambda message: shortened(_cause(message, None, message.error_class)),
    "last error": _full_cause,
    "body": lambda message: beginning(message.body),
}


def columns(names: Iterable[str]) -> list[Column]:
    """Return the columns with these headings."""
    return [Column(name, is_text=name in TEXTS) for name in names]


def row(message: Message, names: Iterable[str]) -> list[Any]:
    """Return values of a message for a table; long texts are shortened."""
    return [(COLUMNS | TEXTS)[name](message) for name in names]
