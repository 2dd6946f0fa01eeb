"""A small bar chart as SVG, made on the server: no script, no style, and said in words too."""

from collections.abc import Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..types import MinuteTally

HEIGHT = 24
BAR = 2

SVG = """
<svg class="mqlite-chart" role="img" viewBox="0 0 {width} {height}" preserveAspectRatio="none">
<title>{title}</title><path class="done" d="{done}"/><path class="failed" d="{failed}"/></svg>
"""


def chart(minutes: Sequence[MinuteTally]) -> SafeString:
    """A bar per minute, the failures on top of what was completed; the title says it in words."""
    most = _busiest(minutes) or 1
    done, failed = [], []
    for place, minute in enumerate(minutes):
        height = _height(minute.completed, most)
        done.append(_bar(place, HEIGHT, height))
        failed.append(_bar(place, HEIGHT - height, _height(minute.failed, most)))
    return format_html(
        SVG,
        width=BAR * len(minutes),
        height=HEIGHT,
        title=_in_words(minutes),
        done="".join(done),
        failed="".join(failed),
    )


def _in_words(minutes: Sequence[MinuteTally]) -> str:
    return _("%(completed)d completed, %(failed)d failed, at most %(most)d in a minute") % {
        "completed": sum(minute.completed for minute in minutes),
        "failed": sum(minute.failed for minute in minutes),
        "most": _busiest(minutes),
    }


def _busiest(minutes: Sequence[MinuteTally]) -> int:
    return max((minute.completed + minute.failed for minute in minutes), default=0)


def _height(count: int, most: int) -> float:
    """Of the bar; a single one among thousands can still be seen."""
    return max(1.0, round(HEIGHT * count / most, 1)) if count else 0.0


def _bar(place: int, foot: float, height: float) -> str:
    """The path of a bar that stands on `foot`; '' for none."""
    return f"M{place * BAR} {foot:g}h{BAR - 0.4:g}v-{height:g}h-{BAR - 0.4:g}z" if height else ""
