"""A message's options and body: validation, encoding and decoding, before any SQL runs."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from .arguments import checked_integer, checked_text, encode_text, optional_text
from .exceptions import MessageTooLarge, PriorityRefused
from .guard import safe_repr
from .timing import MAX_DURATION_MS, Duration, epoch_ms, milliseconds
from .types import MAX_INTEGER, NewMessage

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
TASK = "application/vnd.django-mqlite.task+json"
"""The content type of a task; the subject is the path of its function."""

TEXT_IN_CHARSET = re.compile(
    r"""\s*text/[^;]*;(?:.*;)?\s*charset\s*=\s*["']?([^\s"';]+)""", re.IGNORECASE
)


Encoder = type[json.JSONEncoder]


def encode(
    data: Any, content_type: str | None = None, encoder: Encoder | None = None
) -> tuple[bytes, str | None]:
    """Return the body and content type of `data`: bytes, str as text, other values as strict JSON.

    Bytes have no content type. Text is UTF-8 unless `content_type` names another charset. Tuples
    become arrays. `encoder` is the class of MQLITE['ENCODER'], for values that JSON cannot
    represent. Raises ValueError (NaN, infinity, lone surrogates, circular references, characters
    that the charset cannot encode) or TypeError (keys that are not strings, values that JSON cannot
    represent).
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), None
    if isinstance(data, str):
        return _encode_text(data, charset_of(content_type)), TEXT
    return encode_json(data, "data", encoder).encode(), JSON


def _encode_text(text: str, charset: str) -> bytes:
    body = encode_text(text, "data")
    if charset == "utf-8":
        return body
    try:
        body = text.encode(charset)
        is_same = body.decode(charset) == text
    except ValueError as error:
        raise ValueError(f"data cannot be encoded in {charset}: {safe_repr(text)}") from error
    if not is_same:
        raise ValueError(
            f"data changes when it is encoded in {charset} and decoded again: {safe_repr(text)}. "
            "Use utf-8."
        )
    return body


def charset_of(content_type: str | None) -> str:
    """Return the charset of a text's content type, by default UTF-8; ValueError if unknown."""
    match = TEXT_IN_CHARSET.match(content_type or "")
    charset = match[1].lower() if match else "utf-8"
    try:
        "".encode(charset)
    except (LookupError, ValueError) as error:
        raise ValueError(f"the content type {content_type!r} has an unknown charset") from error
    return charset


HINTS = {
    "tuple": "pass a list",
    "set": "pass a list",
    "frozenset": "pass a list",
    "datetime": "pass .isoformat()",
    "date": "pass .isoformat()",
    "time": "pass .isoformat()",
    "timedelta": "pass .total_seconds()",
    "Decimal": "pass str(…)",
    "UUID": "pass str(…)",
    "bytes": "pass text, for example base64",
    "__proxy__": "a lazy string: pass str(…) in the intended language",
    "QuerySet": "pass the primary keys",
    "QueryDict": "pass .dict() or dict(….lists())",
}
"""Advice for unsupported values, by the name of their type."""


def hint_for(value: Any) -> str:
    """Return what to pass instead of a value that JSON cannot represent, or ""."""
    kind = type(value)
    if hasattr(kind, "__members__"):
        return "; pass .value"
    if hasattr(kind, "_meta") and hasattr(value, "pk"):
        return "; pass .pk and load the object later"
    hint = HINTS.get(kind.__name__)
    return f"; {hint}" if hint else ""


def encode_json(value: Any, name: str, encoder: Encoder | None = None) -> str:
    """Return `value` as compact, strict JSON; errors contain the path of the value in `name`."""
    try:
        text = json.dumps(
            value, cls=encoder, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        text.encode()
    except RecursionError as error:
        raise ValueError(f"{name} is nested too deeply for JSON") from error
    except (TypeError, ValueError) as error:
        check_values(value, name, encoder)
        raise ValueError(f"{name}: {error}") from error  # a circular reference
    check_keys(value, name)
    return text


def nested_values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the value and all nested values with their paths; visit each container once."""
    pending, seen = [(path, value)], set()
    while pending:
        path, value = pending.pop()
        yield path, value
        if id(value) in seen:
            continue
        if isinstance(value, dict):
            seen.add(id(value))
            pending += [(f"{path}[{safe_repr(key)}]", item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            seen.add(id(value))
            pending += [(f"{path}[{index}]", item) for index, item in enumerate(value)]


def check_keys(value: Any, path: str) -> None:
    """Raise TypeError for keys that are not strings: json.dumps would change 1 to "1"."""
    for where, item in nested_values(value, path):
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(
                        f"{where} has the key {safe_repr(key)}: keys in JSON are strings"
                    )


def check_values(value: Any, path: str, encoder: Encoder | None = None) -> None:
    """Raise TypeError or ValueError for the first key or value that is not valid in JSON."""
    check_keys(value, path)
    for where, item in nested_values(value, path):
        leaf = dict.fromkeys(item) if isinstance(item, dict) else item
        if isinstance(item, list | tuple):
            continue
        try:
            json.dumps(leaf, cls=encoder, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            if isinstance(item, int):
                raise ValueError(f"{where} has too many digits: {error}") from error
            kind = TypeError if isinstance(error, TypeError) else ValueError
            text = f"{where} is {safe_repr(item)}, which JSON cannot represent{hint_for(item)}"
            raise kind(text) from error


def is_json(content_type: str | None) -> bool:
    """Return whether a body of this type is JSON."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == JSON or kind.endswith("+json")


def is_text(content_type: str | None) -> bool:
    """Return whether a body of this type is text."""
    return (content_type or "").strip().lower().startswith("text/")


def decode(body: bytes, content_type: str | None) -> Any:
    """Decode the body by its content type: parsed JSON, text, or the bytes themselves."""
    if is_json(content_type):
        return json.loads(body)
    if is_text(content_type):
        return body.decode(charset_of(content_type))
    return body


def encode_again(
    data: Any, content_type: str | None, encoder: Encoder | None = None
) -> tuple[bytes, str | None]:
    """Return the body and content type of `data` that replaces a body of this content type.

    The content type is kept if it fits the data, for example the type of a task. Raises the errors
    of encode().
    """
    body, default_type = encode(data, content_type, encoder)
    fits = {
        None: not (is_json(content_type) or is_text(content_type)),
        TEXT: is_text(content_type),
        JSON: is_json(content_type),
    }
    return body, (content_type if content_type and fits[default_type] else default_type)


MAX_PROPERTIES = 65_536
"""The size of all properties as JSON. Filters read them; large data belongs in the body."""
LAST_VISIBLE_AT = 221_845_392_000_000
"""The year 9000, so that a TTL which starts then ends within the range of datetime."""


class MessageOptions(TypedDict, total=False):
    """The options of enqueue() besides queue and data; durations are timedeltas or seconds."""

    delay: Duration | None
    """Deliver the message after this delay. Cannot be combined with `visible_at`."""
    visible_at: datetime | None
    """Deliver the message at this time, an aware datetime."""
    ttl: Duration | None
    """The time to live from the delivery time; limited by the queue's."""
    priority: int
    """Higher priorities go first. Not allowed with `group_id` or in a `strict_fifo` queue."""
    max_delivery_count: int | None
    """The delivery limit; the queue's by default."""
    message_id: str | None
    """Your own id for the message, which is also the deduplication key."""
    unique_key: str | None
    """Only one unfinished message of the queue can have this key; others are not stored."""
    correlation_id: str | None
    """Not used by the queue."""
    reply_to: str | None
    """Not used by the queue."""
    group_id: str | None
    """Messages of a group are delivered in order, one at a time."""
    subject: str | None
    """A text for filters and searches."""
    content_type: str | None
    """Derived from the data by default; bytes have none. A str is encoded in its charset."""
    properties: Mapping[str, str] | None
    """Not used by the queue, except in filters. At most 64 KiB together as JSON."""


def stored_timeout_ms(value: object) -> int | None:
    """Return the timeout that a task's property `timeout_ms` stores, or None if it is not valid."""
    if (
        not isinstance(value, str)
        or not value.isdecimal()
        or len(value) > len(str(MAX_DURATION_MS))
    ):
        return None
    return int(value) or None


def timeout_ms_of(message: Any) -> int | None:
    """Return the timeout that was stored with a task's message, or None for its queue's."""
    if message.content_type != TASK or not isinstance(message.properties, Mapping):
        return None
    return stored_timeout_ms(message.properties.get("timeout_ms"))


class Draft:
    """The data and options of one message, for enqueue_many()."""

    def __init__(self, data: Any, **options: Unpack[MessageOptions]) -> None:
        self.data = data
        self.options = options


def new_message(  # noqa: PLR0913 - the arguments are the message
    queue: str,
    data: Any,
    *,
    max_body_bytes: int,
    encoder: Encoder | None = None,
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
    unique_key: str | None = None,
) -> NewMessage:
    """Validate a message; raise a ValueError or TypeError that names the argument."""
    content_type = optional_text(content_type, "content_type")
    body, default_type = encode(data, content_type, encoder)
    if len(body) > max_body_bytes:
        raise MessageTooLarge(len(body), max_body_bytes)
    if delay is not None and visible_at is not None:
        raise ValueError("Pass either delay or visible_at, not both.")
    if group_id is not None and priority != 0:
        raise PriorityRefused(queue)
    return NewMessage(
        queue=checked_text(queue, "queue"),
        body=body,
        content_type=content_type or default_type,
        delay_ms=0 if delay is None else milliseconds(delay, "delay"),
        visible_at=None if visible_at is None else _visible_at(visible_at),
        ttl_ms=0 if ttl is None else milliseconds(ttl, "ttl", minimum=1),
        priority=checked_integer(priority, "priority", minimum=-MAX_INTEGER),
        max_delivery_count=0
        if max_delivery_count is None
        else checked_integer(max_delivery_count, "max_delivery_count"),
        message_id=optional_text(message_id, "message_id"),
        correlation_id=optional_text(correlation_id, "correlation_id"),
        reply_to=optional_text(reply_to, "reply_to"),
        group_id=optional_text(group_id, "group_id"),
        subject=optional_text(subject, "subject"),
        properties=_properties(properties),
        unique_key=optional_text(unique_key, "unique_key"),
    )


def _visible_at(value: datetime) -> int:
    if not isinstance(value, datetime):
        raise TypeError(f"visible_at must be an aware datetime, not {safe_repr(value)}")
    at = epoch_ms(value)
    if not 0 < at <= LAST_VISIBLE_AT:
        raise ValueError(f"visible_at must be between 1970 and the year 9000, not {value!r}")
    return at


def _properties(value: Mapping[str, str] | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"properties must be a mapping, not {safe_repr(value)}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise TypeError(
                f"properties must map str to str, not {safe_repr(key)} to {safe_repr(item)}"
            )
    encoded = encode_json(dict(value), "properties")
    if (size := len(encoded.encode())) > MAX_PROPERTIES:
        raise ValueError(
            f"properties take {size:,} bytes as JSON; at most {MAX_PROPERTIES:,} are allowed. Put "
            "larger values into the message's data."
        )
    return encoded
