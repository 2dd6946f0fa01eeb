"""Bodies, JSON and failed deliveries as text and HTML."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.timezone import localtime
from django.utils.translation import gettext

from .. import message, timing
from ..exceptions import format_error
from ..formatting import format_time
from ..timing import epoch_ms, moment

MAX_CHARACTERS = 20_000
MAX_HEX_BYTES = 4_096
BYTES_PER_LINE = 16
PREVIEW_CHARACTERS = 60


def printable(text: str) -> str:
    """Escape lone surrogates, which cannot be encoded, and NUL, which is invisible."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def shortened(text: str | None) -> str | None:
    """Return the beginning of a text, for a list."""
    return Truncator(printable(text)).chars(PREVIEW_CHARACTERS) if text else None


def preformatted(text: str) -> SafeString:
    """Return the text as HTML, truncated if it is long; long lines scroll in their box."""
    return format_html('<pre class="mqlite-pre" tabindex="0">{}</pre>', _truncated(printable(text)))


def time_with_age(at: datetime | None) -> str:
    """Return the time with its seconds and its age, and the whole date as a tooltip; "" if None."""
    if at is None:
        return ""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        f"{localtime(at):%Y-%m-%d %H:%M:%S %Z}",
        format_time(epoch_ms(at), now=timing.now_ms()),
    )


SEQUENCE_NUMBER = re.compile(r"(?<![&\w])#(\d+)\b")


def with_links(text: str, ids: Collection[int], url: Callable[[int], str]) -> SafeString:
    """Return the text with a link to the page of each message of `ids` that it names as #17."""

    def link(match: re.Match[str]) -> str:
        number = int(match[1])
        return (
            format_html('<a href="{}">#{}</a>', url(number), number) if number in ids else match[0]
        )

    return mark_safe(SEQUENCE_NUMBER.sub(link, conditional_escape(text)))  # noqa: S308 - escaped


def readable_body(body: bytes, content_type: str | None) -> str:
    """Return indented JSON, text or a hex dump, which is truncated if it is long.

    A body that does not match its content type is shown as text or as bytes.
    """
    try:
        return _readable(message.decode(body, content_type))
    except (ValueError, RecursionError):
        return _readable(_text_or_bytes(body))


def readable_json(value: Any) -> str:
    """Return the value as JSON, indented unless it is nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=2)
    except RecursionError:
        return json.dumps(value, ensure_ascii=False)


def _readable(data: Any) -> str:
    match data:
        case bytes():
            return _hex_dump(data)
        case str():
            return data
        case _:
            return readable_json(data)


def _text_or_bytes(body: bytes) -> str | bytes:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def _truncated(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n… {MAX_CHARACTERS:,} of {len(text):,} characters"


def _hex_dump(body: bytes) -> str:
    shown = body[:MAX_HEX_BYTES]
    starts = range(0, len(shown), BYTES_PER_LINE)
    lines = [_hex_line(start, shown[start : start + BYTES_PER_LINE]) for start in starts]
    if len(body) > len(shown):
        lines.append(f"… {len(shown):,} of {len(body):,} bytes")
    return "\n".join(lines)


def _hex_line(start: int, part: bytes) -> str:
    letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{start:08x}  {part.hex(' '):<{BYTES_PER_LINE * 3}} {letters}"


def failed_deliveries(
    errors: Sequence[Mapping[str, Any]], shown: Callable[[str], str | None]
) -> SafeString:
    """Return a list of failed deliveries, most recent first, with collapsible tracebacks.

    `shown` returns what the user may see of a text of an error, or None.
    """
    items = ((_failed_delivery(error, shown),) for error in reversed(errors))
    return format_html(
        '<ol class="mqlite-failures" reversed start="{}">{}</ol>',
        len(errors),
        format_html_join("", "<li>{}</li>", items),
    )


def _failed_delivery(error: Mapping[str, Any], shown: Callable[[str], str | None]) -> SafeString:
    failed_at = moment(error.get("failed_at") or 0)
    facts = gettext("delivery %(number)s, %(worker)s") % {
        "number": error.get("delivery", "?"),
        "worker": error.get("worker") or gettext("unnamed worker"),
    }
    texts = {
        name: text and shown(str(text))
        for name in ("message", "traceback")
        if (text := error.get(name))
    }
    summary = format_html(
        "<strong>{}</strong><br>{}, {}",
        printable(format_error({"class": error.get("class"), "message": texts.get("message")}))
        or gettext("hidden"),
        printable(facts),
        time_with_age(failed_at) or "?",
    )
    if not texts.get("traceback"):
        return summary
    return format_html(
        "<details><summary>{}</summary>{}</details>", summary, preformatted(str(texts["traceback"]))
    )
