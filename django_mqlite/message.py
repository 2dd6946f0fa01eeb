"""A message's options and body: validation, encoding and decoding, before any SQL runs."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from .exceptions import MessageTooLarge, PriorityRefused
from .timing import Duration, epoch_ms, milliseconds
from .types import MAX_INTEGER, NewMessage

BYTES = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
TASK = "application/vnd.django-mqlite.task+json"
"""A call of a task; its subject is the path of the function."""

TEXT_IN_CHARSET = re.compile(
    r"""\s*text/[^;]*;(?:.*;)?\s*charset\s*=\s*["']?([^\s"';]+)""", re.IGNORECASE
)


def encode(data: Any, content_type: str | None = None) -> tuple[bytes, str]:
    """The body and content type of `data`: bytes verbatim, str as text, the rest as strict JSON.

    Text is UTF-8 unless `content_type` names another charset. Tuples become arrays. Raises
    ValueError (NaN, infinity, lone surrogates, circular references, letters that the charset does
    not have) or TypeError (keys that are not strings, values JSON does not have), naming the value.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), BYTES
    if isinstance(data, str):
        return _in_charset(data, charset_of(content_type)), TEXT
    return encode_json(data, "data").encode(), JSON


def encode_text(text: str, name: str) -> bytes:
    """`text` as UTF-8; a ValueError that names it for lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} has a lone surrogate and is not text: {text!r:.100}") from error


def _in_charset(text: str, charset: str) -> bytes:
    body = encode_text(text, "data")
    try:
        return body if charset == "utf-8" else text.encode(charset)
    except UnicodeEncodeError as error:
        raise ValueError(f"data has letters that {charset} does not have: {text!r:.100}") from error


def charset_of(content_type: str | None) -> str:
    """The charset that the content type of a text names, else UTF-8; ValueError if unknown."""
    match = TEXT_IN_CHARSET.match(content_type or "")
    charset = match[1].lower() if match else "utf-8"
    try:
        "".encode(charset)
    except (LookupError, ValueError) as error:
        raise ValueError(f"the content type {content_type!r} names no known charset") from error
    return charset


def encode_json(value: Any, name: str) -> str:
    """`value` as compact strict JSON text; errors say where in `name` the trouble is."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except RecursionError as error:
        raise ValueError(f"{name} is nested too deeply for JSON") from error
    except (TypeError, ValueError) as error:
        refuse(value, name)
        raise ValueError(f"{name}: {error}") from error  # a circular reference
    refuse_keys(value, name)
    return text


def places(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value inside, with the path to it; each container once, however often it is met."""
    waiting, seen = [(path, value)], set()
    while waiting:
        path, value = waiting.pop()
        yield path, value
        if id(value) in seen:
            continue
        if isinstance(value, dict):
            seen.add(id(value))
            waiting += [(f"{path}[{shown(key)}]", item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            seen.add(id(value))
            waiting += [(f"{path}[{place}]", item) for place, item in enumerate(value)]


def refuse_keys(value: Any, path: str) -> None:
    """json.dumps makes "1" of 1 and "null" of None: what came back would not be what went in."""
    for where, item in places(value, path):
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(f"{where} has the key {shown(key)}; keys in JSON are strings")


def refuse(value: Any, path: str) -> None:
    """Raise for a key or value that JSON does not have, if there is one."""
    refuse_keys(value, path)
    for where, item in places(value, path):
        leaf = dict.fromkeys(item) if isinstance(item, dict) else item
        if isinstance(item, list | tuple):
            continue
        try:
            json.dumps(leaf, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{where} is {shown(item)}, which JSON does not have") from error


def shown(value: object) -> str:
    """`value` for an error's text, whatever its __repr__ does."""
    try:
        return repr(value)[:100]
    except Exception:  # noqa: BLE001 - the error to tell is another one
        return f"a {type(value).__name__}"


def decode(body: bytes, content_type: str | None) -> Any:
    """Decode the body by its content type: parsed JSON, text, or the bytes themselves."""
    kind = (content_type or BYTES).partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        return json.loads(body)
    if kind.startswith("text/"):
        return body.decode(charset_of(content_type))
    return body


MAX_TEXT = 1024
MAX_PROPERTIES = 65_536
"""Bytes of all of them as JSON. Filters read them; large data belongs into the body."""
LAST_VISIBLE_AT = 221_845_392_000_000
"""The year 9000: a time to live counted from there still ends within Python's datetime."""


class MessageOptions(TypedDict, total=False):
    """The options of enqueue() besides queue and data; durations are timedeltas or seconds."""

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
    body, own_type = encode(data, content_type)
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
    encode_text(value, name)
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
    encoded = encode_json(dict(value), "properties")
    if (size := len(encoded.encode())) > MAX_PROPERTIES:
        raise ValueError(
            f"properties take {size:,} bytes as JSON; at most {MAX_PROPERTIES:,} are allowed. Put "
            "larger values into the message's data."
        )
    return encoded
