"""What is remembered of failed deliveries, as HTML."""

from collections.abc import Mapping
from typing import Any

from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from ..exceptions import said
from ..timing import moment
from .readable import printable

TRACEBACK = """
<details><summary>{summary}</summary><pre>{traceback}</pre></details>
"""


def failed_deliveries(errors: list[Mapping[str, Any]]) -> SafeString:
    """Each failure with who and when, the last one first; its traceback opens on a click."""
    return format_html(
        """<ol reversed start="{}">{}</ol>""",
        len(errors),
        format_html_join("", "<li>{}</li>", ((_failure(error),) for error in reversed(errors))),
    )


def _failure(error: Mapping[str, Any]) -> SafeString:
    head, facts = printable(said(error)), printable(_facts(error))
    summary = format_html("<strong>{}</strong><br>{}", head, facts)
    if not error.get("traceback"):
        return summary
    return format_html(TRACEBACK, summary=summary, traceback=printable(str(error["traceback"])))


def _facts(error: Mapping[str, Any]) -> str:
    at = moment(error.get("failed_at") or 0)
    return _("delivery %(number)s, %(worker)s, %(at)s") % {
        "number": error.get("delivery", "?"),
        "worker": error.get("worker") or _("unnamed worker"),
        "at": localize(localtime(at)) if at else "?",
    }
