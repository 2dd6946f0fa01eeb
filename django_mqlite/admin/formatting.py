"""Bodies, JSON, failed deliveries and charts as text and HTML."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.timezone import localtime
from django.utils.translation import gettext

from .. import message
from ..exceptions import format_error
from ..timing import moment
from ..types import PeriodTally

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
    """Return the text as HTML; long lines scroll instead of widening the page."""
    return format_html('<pre class="mqlite-pre" tabindex="0">{}</pre>', text)


def readable_body(body: bytes, content_type: str | None) -> str:
    """Return indented JSON, text or a hex dump, truncated if it is long.

    A body that does not match its content type is shown as text or as bytes.
    """
    try:
        return _readable(message.decode(body, content_type))
    except (ValueError, RecursionError):
        return _readable(_text_or_bytes(body))


def readable_json(value: Any) -> str:
    """Return the value as JSON, indented unless it is nested too deeply, truncated if long."""
    try:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    except RecursionError:
        text = json.dumps(value, ensure_ascii=False)
    return _truncated(printable(text))


def _readable(data: Any) -> str:
    match data:
        case bytes():
            return _hex_dump(data)
        case str():
            return _truncated(printable(data))
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


def failed_deliveries(errors: Sequence[Mapping[str, Any]]) -> SafeString:
    """Return a list of failed deliveries, most recent first, with collapsible tracebacks."""
    items = ((_failed_delivery(error),) for error in reversed(errors))
    return format_html(
        '<ol reversed start="{}">{}</ol>',
        len(errors),
        format_html_join("", "<li>{}</li>", items),
    )


def _failed_delivery(error: Mapping[str, Any]) -> SafeString:
    failed_at = moment(error.get("failed_at") or 0)
    facts = gettext("delivery %(number)s, %(worker)s, %(at)s") % {
        "number": error.get("delivery", "?"),
        "worker": error.get("worker") or gettext("unnamed worker"),
        "at": localize(localtime(failed_at)) if failed_at else "?",
    }
    summary = format_html(
        "<strong>{}</strong><br>{}", printable(format_error(error)), printable(facts)
    )
    if not error.get("traceback"):
        return summary
    traceback = printable(str(error["traceback"]))
    return format_html("<details><summary>{}</summary><pre>{}</pre></details>", summary, traceback)


CHART_HEIGHT = 24
BAR_WIDTH = 2
CHART = """
<svg class="mqlite-chart" role="img" viewBox="0 0 {width} {height}" preserveAspectRatio="none">
<title>{title}</title><path class="done" d="{completed}"/><path class="failed" d="{failed}"/></svg>
"""


def chart(minutes: Sequence[PeriodTally]) -> SafeString:
    """Return an SVG with a bar per minute, failures on top; its title contains the totals."""
    maximum = max((minute.completed + minute.failed for minute in minutes), default=0)
    title = gettext("%(completed)d completed, %(failed)d failed, at most %(maximum)d in a minute")
    completed, failed = [], []
    for index, minute in enumerate(minutes):
        height = _bar_height(minute.completed, maximum)
        completed.append(_bar(index, CHART_HEIGHT, height))
        failed.append(_bar(index, CHART_HEIGHT - height, _bar_height(minute.failed, maximum)))
    return format_html(
        CHART,
        width=BAR_WIDTH * len(minutes),
        height=CHART_HEIGHT,
        title=title
        % {
            "completed": sum(minute.completed for minute in minutes),
            "failed": sum(minute.failed for minute in minutes),
            "maximum": maximum,
        },
        completed="".join(completed),
        failed="".join(failed),
    )


def _bar_height(count: int, maximum: int) -> float:
    """Return the height of a bar: 0 for no delivery, else at least 1 so that it is visible."""
    return max(1.0, round(CHART_HEIGHT * count / maximum, 1)) if count else 0.0


def _bar(index: int, bottom: float, height: float) -> str:
    """Return the SVG path of a bar, or "" for an empty one."""
    if not height:
        return ""
    width = BAR_WIDTH - 0.4
    return f"M{index * BAR_WIDTH} {bottom:g}h{width:g}v-{height:g}h-{width:g}z"
