"""Bodies: what the caller passes, as bytes with a content type, and back. JSON, never pickle."""

import json
from typing import Any

BYTES = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


def encode(data: Any) -> tuple[bytes, str]:
    """The body and content type of `data`: bytes verbatim, str as UTF-8, the rest as strict JSON.

    Tuples become arrays. Raises ValueError (NaN, infinity, lone surrogates, circular references)
    or TypeError (keys that are not strings, values JSON does not have), naming the value.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), BYTES
    if isinstance(data, str):
        return data.encode(), TEXT
    return encode_json(data, "data").encode(), JSON


def encode_json(value: Any, name: str) -> str:
    """`value` as compact strict JSON text; errors say where in `name` the trouble is."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
        check_keys(value, name)
    except RecursionError as error:
        raise ValueError(f"{name} is nested too deeply for JSON") from error
    except (TypeError, ValueError) as error:
        blame(value, name)
        raise type_of(error)(str(error)) from error  # a bad key, or a circular reference
    return text


def check_keys(value: Any, path: str) -> None:
    """json.dumps makes "1" of 1 and "null" of None: what came back would not be what went in."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{path} has the key {key!r}; keys in JSON are strings")
            check_keys(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            check_keys(item, f"{path}[{place}]")


def blame(value: Any, path: str, depth: int = 100) -> None:
    """Raise for the innermost value that JSON does not have."""
    if depth == 0:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            blame(item, f"{path}[{key!r}]", depth - 1)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            blame(item, f"{path}[{place}]", depth - 1)
    else:
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise type_of(error)(f"{path} is {value!r:.100}, which JSON does not have") from error


def type_of(error: Exception) -> type[Exception]:
    """UnicodeEncodeError cannot be raised with a message alone."""
    return TypeError if isinstance(error, TypeError) else ValueError


def decode(body: bytes, content_type: str | None) -> Any:
    """What `content_type` says: parsed JSON, text, or the bytes themselves."""
    kind = (content_type or BYTES).partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        return json.loads(body)
    if kind.startswith("text/"):
        return body.decode()
    return body
