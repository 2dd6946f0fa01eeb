"""Bodies: what the caller passes, as bytes with a content type, and back. JSON, never pickle."""

import json
import re
from collections.abc import Iterator
from typing import Any

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
    """What `content_type` says: parsed JSON, text, or the bytes themselves."""
    kind = (content_type or BYTES).partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        return json.loads(body)
    if kind.startswith("text/"):
        return body.decode(charset_of(content_type))
    return body
