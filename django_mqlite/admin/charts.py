"""Charts of deliveries as SVG: a small one for a table, and one with axes for a queue's page."""

from collections.abc import Callable, Sequence
from datetime import datetime

from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext

from ..timing import EPOCH, moment
from ..types import PeriodTally

BARS = 20
BAR_WIDTH = 5
HEIGHT = 16
SPARKLINE = """<svg class="spark" role="img" viewBox="0 0 {width} {height}">\
<title>{title}</title>{paths}</svg>"""


def sparkline(minutes: Sequence[PeriodTally]) -> SafeString:
    """Return a chart of the last hour without axes, failures on top; its title has the totals."""
    size = len(minutes) // BARS
    bars = [_sum(minutes[start : start + size]) for start in range(0, len(minutes), size)]
    maximum = max(bar.completed + bar.failed for bar in bars)
    paths = {"done": "", "failed": ""}
    for index, bar in enumerate(bars):
        done = _height(bar.completed, maximum, HEIGHT)
        failed = _height(bar.failed, maximum, HEIGHT)
        paths["done"] += _bar(index, HEIGHT, done)
        paths["failed"] += _bar(index, HEIGHT - done, failed)
    return format_html(
        SPARKLINE,
        width=BAR_WIDTH * len(bars),
        height=HEIGHT,
        title=totals(minutes),
        paths=format_html_join(
            "", '<path class="{}" d="{}"/>', [item for item in paths.items() if item[1]]
        ),
    )


def totals(periods: Sequence[PeriodTally]) -> str:
    """Return the number of completed and of failed deliveries."""
    total = _sum(periods)
    return gettext("%(completed)s completed, %(failed)s failed") % {
        "completed": grouped(total.completed),
        "failed": grouped(total.failed),
    }


def grouped(number: int) -> str:
    """Return the number with the separators of the active language."""
    return str(number) if number < 1_000 else number_format(number, force_grouping=True)


def _sum(periods: Sequence[PeriodTally]) -> PeriodTally:
    return PeriodTally(
        began_ms=periods[0].began_ms,
        completed=sum(period.completed for period in periods),
        failed=sum(period.failed for period in periods),
    )


def _height(count: int, maximum: int, full: int) -> int:
    """Return the height of a bar: 0 for no delivery, else at least 1 so that it is visible."""
    return max(1, round(full * count / maximum)) if count else 0


def _bar(index: int, bottom: int, height: int) -> str:
    """Return the SVG path of a bar, or "" for an empty one."""
    if not height:
        return ""
    width = BAR_WIDTH - 1
    return f"M{index * BAR_WIDTH} {bottom}h{width}v-{height}h-{width}z"


LEFT, RIGHT, TOP, BOTTOM = 52, 8, 26, 26
WIDTH, PLOT_HEIGHT = 740, 150
PLOT_WIDTH = WIDTH - LEFT - RIGHT
CHART = """
<svg class="mqlite-chart" role="img" viewBox="0 0 {width} {height}">
<title>{title}</title>
<text class="unit" x="{left}" y="10">{unit}</text>
{grid}
{bars}
{hours}
</svg>
"""
GRID = """<path class="grid" d="M{left} {y}h{width}"/>\
<text class="value" x="{label}" y="{baseline}">{value}</text>"""
BAR = """<g class="bar"><title>{title}</title><rect class="hover" x="{x}" y="{top}" width="{step}"\
 height="{full}"/><rect class="done" x="{x}" y="{done_y}" width="{width}" height="{done}"/>\
<rect class="failed" x="{x}" y="{failed_y}" width="{width}" height="{failed}"/></g>"""


def chart(periods: Sequence[PeriodTally], *, unit: str, tick_minutes: int) -> SafeString:
    """Return a chart of deliveries with axes; a bar shows its values when it is pointed at.

    `unit` says what a bar counts. There is a label at each `tick_minutes` of the local time.
    """
    maximum = round_up(max(period.completed + period.failed for period in periods))
    step = PLOT_WIDTH / len(periods)
    return format_html(
        CHART,
        width=WIDTH,
        height=TOP + PLOT_HEIGHT + BOTTOM,
        left=0,
        unit=unit,
        title=f"{unit}: {totals(periods)}",
        grid=format_html_join("\n", "{}", [(_grid_line(maximum, half),) for half in (0, 1, 2)]),
        bars=format_html_join(
            "\n",
            "{}",
            [
                (_chart_bar(period, LEFT + index * step, step, maximum),)
                for index, period in enumerate(periods)
            ],
        ),
        hours=_ticks(periods, step, lambda at: (at.hour * 60 + at.minute) % tick_minutes == 0),
    )


def round_up(number: int) -> int:
    """Return the next number of which the half is a whole number that is easy to read."""
    magnitude = 1
    while True:
        for factor in (2, 4, 6, 10):
            if number <= factor * magnitude:
                return factor * magnitude
        magnitude *= 10


def _grid_line(maximum: int, half: int) -> SafeString:
    y = TOP + PLOT_HEIGHT - PLOT_HEIGHT * half // 2
    return format_html(
        GRID,
        left=LEFT,
        y=y,
        width=PLOT_WIDTH,
        label=LEFT - 6,
        baseline=y + 4,
        value=grouped(maximum * half // 2),
    )


def _chart_bar(period: PeriodTally, x: float, step: float, maximum: int) -> SafeString:
    done = _height(period.completed, maximum, PLOT_HEIGHT)
    failed = _height(period.failed, maximum, PLOT_HEIGHT)
    bottom = TOP + PLOT_HEIGHT
    return format_html(
        BAR,
        title=f"{_local(period):%H:%M}: {totals([period])}",
        x=f"{x:.1f}",
        top=TOP,
        step=f"{step:.1f}",
        full=PLOT_HEIGHT,
        width=f"{step - 1.5:.1f}",
        done_y=bottom - done,
        done=done,
        failed_y=bottom - done - failed,
        failed=failed,
    )


def _ticks(
    periods: Sequence[PeriodTally], step: float, is_tick: Callable[[datetime], bool]
) -> SafeString:
    labels = [
        (f"{LEFT + (index + 0.5) * step:.1f}", TOP + PLOT_HEIGHT + 18, f"{_local(period):%H:%M}")
        for index, period in enumerate(periods)
        if is_tick(_local(period))
    ]
    return format_html_join("\n", '<text class="time" x="{}" y="{}">{}</text>', labels)


def _local(period: PeriodTally) -> datetime:
    return localtime(moment(period.began_ms) or EPOCH)
