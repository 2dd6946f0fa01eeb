"""Bodies and documents as text that a person can read and a page can bear."""

import json
from typing import Any

from django.utils.text import Truncator

from .. import message

MAX_CHARACTERS = 20_000
MAX_HEX_BYTES = 4_096
BYTES_A_LINE = 16
PREVIEW = 60


def readable_body(body: bytes, content_type: str | None) -> str:
    """The body as its content type says: indented JSON, text, else a hex dump; cut when long.

    Never raises: a body that is not what it says is shown as text if it is any, else as bytes.
    """
    try:
        return _readable(message.decode(body, content_type))
    except (ValueError, RecursionError):
        return _readable(_text_or_bytes(body))


def readable_json(value: Any) -> str:
    """The value as indented JSON, cut when long."""
    return cut(printable(json.dumps(value, ensure_ascii=False, indent=2)))


def printable(text: str) -> str:
    """Lone surrogates cannot be sent and NUL cannot be seen."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def shortened(text: str | None) -> str | None:
    """The beginning of a text, for a list."""
    return Truncator(printable(text)).chars(PREVIEW) if text else None


def cut(text: str) -> str:
    """At most MAX_CHARACTERS of it, and then how many there are."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n… {MAX_CHARACTERS:,} of {len(text):,} characters"


def _readable(data: Any) -> str:
    match data:
        case bytes():
            return _hex_dump(data)
        case str():
            return cut(printable(data))
        case _:
            return readable_json(data)


def _text_or_bytes(body: bytes) -> str | bytes:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def _hex_dump(body: bytes) -> str:
    shown = body[:MAX_HEX_BYTES]
    starts = range(0, len(shown), BYTES_A_LINE)
    lines = [_hex_line(start, shown[start : start + BYTES_A_LINE]) for start in starts]
    if len(body) > len(shown):
        lines.append(f"… {len(shown):,} of {len(body):,} bytes")
    return "\n".join(lines)


def _hex_line(start: int, part: bytes) -> str:
    letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{start:08x}  {part.hex(' '):<{BYTES_A_LINE * 3}} {letters}"
