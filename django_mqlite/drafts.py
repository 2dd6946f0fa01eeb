"""A message is checked before any SQL runs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from . import content
from .durations import Duration, milliseconds
from .exceptions import MessageTooLarge, PriorityRefused
from .fields import epoch_ms
from .types import MAX_INTEGER, NewMessage

MAX_TEXT = 1024
MAX_PROPERTIES = 65_536
"""Bytes of all of them as JSON. Filters read them; large data belongs into the body."""
LAST_VISIBLE_AT = 221_845_392_000_000
"""The year 9000: a time to live counted from there still ends within Python's datetime."""


class MessageOptions(TypedDict, total=False):
    """What enqueue() takes besides queue and data. Lengths of time are timedeltas or seconds."""

    delay: Duration | None
    """Deliver it after so long; not together with `visible_at`."""
    visible_at: datetime | None
    """Deliver it at this moment, an aware datetime."""
    ttl: Duration | None
    """How long it may wait, counted from its delivery time; the queue's is the ceiling."""
    priority: int
    """Higher goes first; not together with `group_id`, nor in a `strict_fifo` queue."""
    max_delivery_count: int | None
    """Its own bound, by default the queue's."""
    message_id: str | None
    """Your id for it, also the key of deduplication."""
    correlation_id: str | None
    """Handed through."""
    reply_to: str | None
    """Handed through."""
    group_id: str | None
    """Messages of a group are handled one after the other, in order."""
    subject: str | None
    """What it is about; filters may ask for it."""
    content_type: str | None
    """Needed only where the data does not say it. A str becomes text in the charset it names."""
    properties: Mapping[str, str] | None
    """Handed through; filters may ask for them. Together at most 64 KiB as JSON."""


class Draft:
    """The data of a message with options of its own, for enqueue_many()."""

    def __init__(self, data: Any, **options: Unpack[MessageOptions]) -> None:
        self.data = data
        self.options = options


def draft(  # noqa: PLR0913 - the arguments are the message
    queue: str,
    data: Any,
    *,
    max_body_bytes: int,
    delay: Duration | None = None,
    visible_at: datetime | None = None,
    ttl: Duration | None = None,
    priority: int = 0,
    max_delivery_count: int | None = None,
    message_id: str | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    group_id: str | None = None,
    subject: str | None = None,
    content_type: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> NewMessage:
    """The message as the store takes it, or a ValueError or TypeError that names the argument."""
    content_type = _text(content_type, "content_type")
    body, own_type = content.encode(data, content_type)
    if len(body) > max_body_bytes:
        raise MessageTooLarge(len(body), max_body_bytes)
    if delay is not None and visible_at is not None:
        raise ValueError("delay and visible_at say the same thing: pass one of them")
    if group_id is not None and priority != 0:
        raise PriorityRefused(queue)
    return NewMessage(
        queue=_required_text(queue, "queue"),
        body=body,
        content_type=content_type or own_type,
        delay_ms=0 if delay is None else milliseconds(delay, "delay"),
        visible_at=None if visible_at is None else _visible_at(visible_at),
        ttl_ms=0 if ttl is None else milliseconds(ttl, "ttl", least=1),
        priority=_integer(priority, "priority", least=-MAX_INTEGER),
        max_delivery_count=0
        if max_delivery_count is None
        else _integer(max_delivery_count, "max_delivery_count", least=1),
        message_id=_text(message_id, "message_id"),
        correlation_id=_text(correlation_id, "correlation_id"),
        reply_to=_text(reply_to, "reply_to"),
        group_id=_text(group_id, "group_id"),
        subject=_text(subject, "subject"),
        properties=_properties(properties),
    )


def _text(value: str | None, name: str) -> str | None:
    return None if value is None else _required_text(value, name)


def _required_text(value: str, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {value!r}")
    if not 0 < len(value) <= MAX_TEXT:
        raise ValueError(f"{name} has 1 to {MAX_TEXT} characters, not {len(value)}")
    content.encode_text(value, name)
    if "\0" in value:
        raise ValueError(f"{name} has a NUL character, which SQLite cuts text at: {value!r}")
    return value


def _integer(value: int, name: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {value!r}")
    if not least <= value <= MAX_INTEGER:
        raise ValueError(f"{name} must be between {least} and {MAX_INTEGER}, not {value}")
    return value


def _visible_at(value: datetime) -> int:
    if not isinstance(value, datetime):
        raise TypeError(f"visible_at is an aware datetime, not {value!r}")
    at = epoch_ms(value)
    if not 0 < at <= LAST_VISIBLE_AT:
        raise ValueError(f"visible_at is between 1970 and the year 9000, not {value!r}")
    return at


def _properties(value: Mapping[str, str] | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"properties is a mapping, not {value!r}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise TypeError(f"properties maps str to str, not {key!r} to {item!r}")
    encoded = content.encode_json(dict(value), "properties")
    if (size := len(encoded.encode())) > MAX_PROPERTIES:
        raise ValueError(
            f"properties take {size:,} bytes as JSON; at most {MAX_PROPERTIES:,} are allowed. Put "
            "larger values into the message's data."
        )
    return encoded
