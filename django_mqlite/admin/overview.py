"""The facts of the overview: what is wrong, the queues with their figures, and live workers."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.timezone import localtime
from django.utils.translation import gettext, ngettext

from .. import timing
from ..formatting import format_duration, state_label
from ..models import Queue
from ..timing import EPOCH, moment
from ..types import DeliveryTimes, QueueOverview, State, WorkerRecord
from ..verbs.health import FAILING, LARGE_WAL, LATE, OVERDUE, STUCK, UNSERVED, Health, health_of
from ..verbs.workers import live_workers
from .charts import chart, grouped, sparkline
from .formatting import printable

ALARM, WARNING, QUIET, PLAIN = "alarm", "warn", "quiet", ""
"""The CSS classes of a figure, from the worst."""

UNITS = (86_400_000, 3_600_000, 60_000, 1_000)

SHOWN_QUEUES = 4
"""The most queues that are named for a worker."""


class Figure(NamedTuple):
    """A cell: a value, where it leads to, a second line, and the CSS classes of both."""

    value: str
    note: str = ""
    level: str = PLAIN
    note_level: str = QUIET
    url: str = ""
    column: str = ""


class Fact(NamedTuple):
    """A part of the status line."""

    text: str
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A queue in the table."""

    name: str
    paused: bool
    url: str
    status: Fact
    figures: Sequence[Figure]
    chart: str
    deliveries: str

    @property
    def has_problem(self) -> bool:
        """True if something in the row is coloured."""
        levels = {self.status.level}
        levels.update(*((figure.level, figure.note_level) for figure in self.figures))
        return bool(levels & {ALARM, WARNING})


class Urls(NamedTuple):
    """The pages that the figures lead to; `messages` is "" if the user may not view them."""

    messages: str
    queue: str

    def of_state(self, queue: str, state: State) -> str:
        """Return the list of the queue's messages in a state, or ""."""
        query = urlencode({"queue": queue, "state": state.value})
        return f"{self.messages}?{query}" if self.messages else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The queues that a user may view, with their health and their live workers."""

    overviews: Sequence[QueueOverview]
    health: Health
    workers: Sequence[WorkerRecord]
    now: int

    @classmethod
    def read(cls, names: Collection[str], *, restricted: bool) -> "Situation":
        """Return the situation of these queues.

        `restricted`: show nothing of other queues, and only the workers that serve one of these.
        """
        using = Queue.objects.database
        workers = live_workers(using)
        overviews = [row for row in Queue.objects.overview(workers) if row.stats.queue in names]
        if restricted:
            workers = [_within(worker, names) for worker in workers]
            workers = [worker for worker in workers if worker.queues]
        health = health_of(overviews, workers, using=using)
        if restricted:
            health = replace(health, schedule_problems=(), paused_schedules=())
        return cls(
            overviews=overviews,
            health=health,
            workers=workers,
            now=timing.now_ms(),
        )

    def problems_of(self, queue: str) -> set[str]:
        """Return the codes of the queue's problems."""
        return {problem.code for problem in self.health.queue_problems if problem.queue == queue}


def _within(worker: WorkerRecord, names: Collection[str]) -> WorkerRecord:
    return replace(worker, queues=tuple(queue for queue in worker.queues if queue in names))


def overview_context(situation: Situation, urls: Urls, request_filter: "Filter") -> dict[str, Any]:
    """Return the context of the overview's tables."""
    rows = [queue_row(overview, situation, urls) for overview in situation.overviews]
    return {
        "facts": status_line(situation),
        "rows": [row for row in rows if request_filter.matches(row)],
        "queues": len(rows),
        "workers": [worker_row(worker, situation.now) for worker in situation.workers],
        "as_of": localtime(moment(situation.now) or EPOCH),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What the user has chosen to see of the queues."""

    name: str = ""
    problems_only: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> "Filter":
        return cls(name=query.get("q", "").strip(), problems_only=bool(query.get("problems")))

    def matches(self, row: Row) -> bool:
        is_named = self.name.casefold() in row.name.casefold()
        return is_named and (row.has_problem or not self.problems_only)


# The status line


def status_line(situation: Situation) -> list[Fact]:
    """Return what is wrong, the worst first; if nothing is, a fact that says so."""
    health = situation.health
    queues: dict[str, set[str]] = {}
    for problem in health.queue_problems:
        queues.setdefault(problem.code, set()).add(problem.queue)
    schedules = Counter(problem.code for problem in health.schedule_problems)
    paused = sum(overview.stats.paused for overview in situation.overviews)
    counted = [
        (ALARM, len(queues.get(UNSERVED, ())), _unserved),
        (ALARM, len(queues.get(LATE, ())), _late),
        (ALARM, len(queues.get(STUCK, ())), _stuck),
        (ALARM, schedules[OVERDUE], _overdue),
        (ALARM, schedules[FAILING], _failing),
        (ALARM, int(health.wal_bytes > LARGE_WAL), lambda _count: _large_wal(health.wal_bytes)),
        (ALARM, health.recent_dead_letters, _recent_dead_letters),
        (WARNING, health.retrying, _retrying),
        (WARNING, len(health.busy_queues), _busy),
        (WARNING, paused, _paused),
        (WARNING, len(health.paused_schedules), _paused_schedules),
    ]
    facts = [Fact(text(count), level) for level, count, text in counted if count]
    return facts or [Fact(gettext("Nothing is wrong: no due message waits for long."), PLAIN)]


def _unserved(count: int) -> str:
    return ngettext(
        "%(count)s queue is due and nobody serves it",
        "%(count)s queues are due and nobody serves them",
        count,
    ) % {"count": grouped(count)}


def _late(count: int) -> str:
    return ngettext("%(count)s queue is late", "%(count)s queues are late", count) % {
        "count": grouped(count)
    }


def _stuck(count: int) -> str:
    return ngettext(
        "%(count)s queue is stuck behind a message",
        "%(count)s queues are stuck behind a message",
        count,
    ) % {"count": grouped(count)}


def _overdue(count: int) -> str:
    return ngettext("%(count)s schedule is overdue", "%(count)s schedules are overdue", count) % {
        "count": grouped(count)
    }


def _failing(count: int) -> str:
    return ngettext(
        "%(count)s schedule cannot enqueue its message",
        "%(count)s schedules cannot enqueue their messages",
        count,
    ) % {"count": grouped(count)}


def _paused_schedules(count: int) -> str:
    return ngettext("%(count)s schedule is paused", "%(count)s schedules are paused", count) % {
        "count": grouped(count)
    }


def _large_wal(size: int) -> str:
    return gettext("the write-ahead log has %(size)s") % {"size": filesizeformat(size)}


def _recent_dead_letters(count: int) -> str:
    return ngettext(
        "%(count)s dead letter in the last hour", "%(count)s dead letters in the last hour", count
    ) % {"count": grouped(count)}


def _retrying(count: int) -> str:
    return ngettext("%(count)s message is retrying", "%(count)s messages are retrying", count) % {
        "count": grouped(count)
    }


def _busy(count: int) -> str:
    return ngettext(
        "%(count)s queue waits for a free slot", "%(count)s queues wait for a free slot", count
    ) % {"count": grouped(count)}


def _paused(count: int) -> str:
    return ngettext("%(count)s queue is paused", "%(count)s queues are paused", count) % {
        "count": grouped(count)
    }


# Queues


def queue_row(overview: QueueOverview, situation: Situation, urls: Urls) -> Row:
    """Return the row of a queue."""
    name = overview.stats.queue
    has_deliveries = overview.completed or overview.failed
    return Row(
        name=name,
        paused=overview.stats.paused,
        url=urls.queue.replace("QUEUE", name),
        status=status_of(overview, situation, urls),
        figures=figures_of(overview, situation, urls),
        chart=sparkline(overview.minutes) if has_deliveries else "",
        deliveries=_short_totals(overview) if has_deliveries else "",
    )


def _short_totals(overview: QueueOverview) -> str:
    return gettext("%(completed)s, %(failed)s failed") % {
        "completed": grouped(overview.completed),
        "failed": grouped(overview.failed),
    }


def status_of(overview: QueueOverview, situation: Situation, urls: Urls) -> Fact:
    """Return the condition of a queue, with the reason for it."""
    problems = situation.problems_of(overview.stats.queue)
    label, level = _condition(overview, problems)
    details = [*_behind(overview, situation.now, urls), *limits_of(overview)]
    texts = format_html_join(" · ", "{}", [(text,) for text in (label, *details)])
    return Fact(texts, level)


def _condition(overview: QueueOverview, problems: set[str]) -> tuple[str, str]:
    is_due = overview.stats.due_since_ms is not None
    conditions = [
        (overview.stats.paused, gettext("paused"), WARNING),
        (UNSERVED in problems, gettext("no worker"), ALARM),
        (STUCK in problems, gettext("stuck"), ALARM),
        (overview.is_busy, gettext("all slots busy"), ALARM if LATE in problems else WARNING),
        (is_due and overview.stats.limits.room == 0, gettext("at its limit"), WARNING),
        (LATE in problems, gettext("late"), ALARM),
        (overview.workers > 0, gettext("running"), PLAIN),
        (is_due, gettext("no worker"), WARNING),
    ]
    return next(
        ((label, level) for applies, label, level in conditions if applies),
        (gettext("no worker"), QUIET),
    )


def _behind(overview: QueueOverview, now: int, urls: Urls) -> Iterable[str]:
    """Return what the oldest blocked message waits for, with a link to it."""
    head = overview.head
    if head is None:
        return
    state = state_label(head.state)
    if head.state == State.SCHEDULED and head.visible_at_ms > now:
        due = format_duration(head.visible_at_ms - now)
        state = gettext("%(state)s, in %(time)s") % {"state": state, "time": due}
    message = f"#{head.id}"
    if urls.messages:
        message = format_html('<a href="{}{}/change/">{}</a>', urls.messages, head.id, message)
    blocked = gettext("%(count)s behind") % {"count": grouped(overview.stats.blocked)}
    yield format_html("{} {} ({})", blocked, message, state)


def limits_of(overview: QueueOverview) -> list[str]:
    """Return the queue's limits with their use."""
    limits = overview.stats.limits
    texts = []
    if limits.max_in_flight:
        texts.append(
            gettext("%(count)s of %(limit)s in flight")
            % {"count": grouped(limits.in_flight), "limit": grouped(limits.max_in_flight)}
        )
    if limits.bucket is not None:
        texts.append(
            gettext("%(rate)s, %(tokens)s left")
            % {"rate": limits.bucket.rate, "tokens": grouped(limits.bucket.tokens)}
        )
    return texts


def figures_of(overview: QueueOverview, situation: Situation, urls: Urls) -> list[Figure]:
    """Return the figures of a queue, in the order of the columns."""
    stats = overview.stats
    problems = situation.problems_of(stats.queue)

    def count(state: State, note: str = "", note_level: str = QUIET, column: str = "") -> Figure:
        number = stats.counts[state]
        return Figure(
            value=grouped(number),
            level=PLAIN if number else QUIET,
            note=note,
            note_level=note_level,
            url=urls.of_state(stats.queue, state) if number else "",
            column=column,
        )

    return [
        count(State.ACTIVE, *_due_for(overview, problems, situation.now)),
        count(State.LOCKED, *_slots(overview)),
        count(State.SCHEDULED, *_noted(gettext("%(count)s retrying"), stats.retrying, WARNING)),
        count(State.DEFERRED, column="wide"),
        count(
            State.DEAD_LETTERED,
            *_noted(gettext("%(count)s last hour"), stats.recent_dead_letters, ALARM),
        ),
        count(State.COMPLETED, column="wide"),
        _times(overview),
    ]


def _noted(text: str, count: int, level: str) -> tuple[str, str]:
    return (text % {"count": grouped(count)}, level) if count else ("", QUIET)


def _due_for(overview: QueueOverview, problems: set[str], now: int) -> tuple[str, str]:
    if overview.stats.due_since_ms is None:
        return "", QUIET
    age = _rough(max(0, now - overview.stats.due_since_ms))
    level = ALARM if problems & {UNSERVED, LATE} else QUIET
    return gettext("for %(time)s") % {"time": age}, level


def _rough(ms: int) -> str:
    """Return a duration in its largest unit."""
    return format_duration(next((ms - ms % unit for unit in UNITS if ms >= unit), ms))


def _slots(overview: QueueOverview) -> tuple[str, str]:
    if not overview.slots:
        return "", QUIET
    words = {"busy": grouped(overview.busy), "slots": grouped(overview.slots)}
    level = WARNING if overview.is_busy else QUIET
    return gettext("%(busy)s/%(slots)s slots") % words, level


def _times(overview: QueueOverview) -> Figure:
    if overview.run is None or overview.wait is None:
        return Figure("–", level=QUIET, column="wide")
    words = {"wait": _precise(overview.wait.median_ms), "run": _precise(overview.run.median_ms)}
    return Figure(
        gettext("wait %(wait)s") % words, note=gettext("run %(run)s") % words, column="wide"
    )


def time_rows(overview: QueueOverview) -> list[tuple[str, str, str]]:
    """Return a label, the median and the 95th percentile for the wait time and the run time."""
    rows = ((gettext("Wait time"), overview.wait), (gettext("Run time"), overview.run))
    return [(label, *_percentiles(times)) for label, times in rows if times is not None]


def _percentiles(times: DeliveryTimes) -> tuple[str, str]:
    return _precise(times.median_ms), _precise(times.p95_ms)


def _precise(ms: int) -> str:
    """Return a duration in milliseconds if it is below a second."""
    return gettext("%(count)s ms") % {"count": ms} if ms < 1_000 else format_duration(ms)


def hour_chart(overview: QueueOverview) -> str:
    """Return a chart of the last hour by minute."""
    unit = gettext("Deliveries per minute")
    return chart(overview.minutes, unit=unit, tick_minutes=10)


def day_chart(overview: QueueOverview) -> str:
    """Return a chart of the last day by half-hour."""
    unit = gettext("Deliveries per half-hour")
    return chart(overview.half_hours, unit=unit, tick_minutes=180)


# Workers


def worker_row(worker: WorkerRecord, now: int) -> dict[str, Any]:
    """Return the row of a worker."""
    names = [printable(queue) for queue in worker.queues[:SHOWN_QUEUES]]
    more = len(worker.queues) - len(names)
    if more:
        names.append(gettext("%(count)s more") % {"count": grouped(more)})
    return {
        "worker": printable(worker.worker),
        "host": printable(worker.host),
        "queues": ", ".join(names),
        "slots": grouped(worker.slots),
        "busy": grouped(worker.in_flight),
        "is_busy": 0 < worker.slots <= worker.in_flight,
        "age": format_duration(max(0, now - worker.seen_at)),
    }
