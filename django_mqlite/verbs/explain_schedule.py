"""Explain when a recurring schedule runs next, or why it does not run. Decides purely."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from ..formatting import format_time, state_label
from ..schedules import Schedule
from ..timing import iso
from ..types import Explanation, ScheduleRecord
from .explain import ExplainContext, reaper_runs, reaper_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleContext(ExplainContext):
    """The other facts: `unfinished` is the state of the previous message while it is unfinished."""

    unfinished: str | None = None


def explain_schedule(
    schedule: Schedule, record: ScheduleRecord | None, context: ScheduleContext
) -> Explanation:
    """Return when the schedule runs next, or the first reason that keeps it from running."""
    if record is None or record.definition != schedule.ticks.text:
        code, text = _not_started(record)
    elif record.paused:
        code, text = "paused", _("is paused")
    elif record.error:
        code, text = "failing", _("its message cannot be enqueued: %(error)s")
    else:
        code, text = _ticking(schedule, record, context)
    facts = _facts(schedule, record, context)
    words = {
        "next": _time(facts["next_ms"], context),
        "position": _time(record.position if record else None, context),
        "skipped": _time(record.skipped_tick if record else None, context),
        "state_label": state_label(context.unfinished or ""),
        **reaper_text(context),
    }
    text = text % (facts | words)
    del facts["next_ms"]
    return Explanation(code=code, text=text, facts=facts)


def _not_started(record: ScheduleRecord | None) -> tuple[str, str]:
    if record is None:
        return "not_started", _(
            "has not started: it starts with the next worker or reaper that has this code"
        )
    return "changed", _("has changed: the running workers still have “%(stored)s”, so restart them")


def _ticking(
    schedule: Schedule, record: ScheduleRecord, context: ScheduleContext
) -> tuple[str, str]:
    due = schedule.ticks.after(record.position)
    if due is None:
        return "ended", _("has no tick in the next 50 years")
    if due <= context.now:
        return "due", _("has been due since %(next)s and waits for a reaper; %(reaper)s")
    if context.unfinished and record.skipped_tick > record.last_tick:
        return "skipping", _(
            "was skipped at %(skipped)s, because #%(last_message)d is %(state_label)s; its next "
            "tick is at %(next)s"
        )
    if record.position > context.now:
        return "clock_set_back", _(
            "has already run for its ticks until %(position)s, because the clock was set back; its "
            "next tick is at %(next)s"
        )
    return "waiting", _("runs next at %(next)s")


def _facts(
    schedule: Schedule, record: ScheduleRecord | None, context: ScheduleContext
) -> dict[str, Any]:
    next_ms = _next_ms(schedule, record, context.now)
    return {
        "schedule": schedule.name,
        "definition": schedule.ticks.text,
        "target": schedule.target,
        "catch_up": schedule.catch_up,
        "overlap": schedule.overlap,
        "paused": record.paused if record else False,
        "stored": record.definition if record else None,
        "next_ms": next_ms,
        "next_run": iso(next_ms),
        "last_message": record.last_id or None if record else None,
        "last_tick": iso(record.last_tick) if record else None,
        "skipped_tick": iso(record.skipped_tick) if record else None,
        "error": record.error or None if record else None,
        "reaper_runs": reaper_runs(context),
    }


def _next_ms(schedule: Schedule, record: ScheduleRecord | None, now: int) -> int | None:
    """Return the next tick: a due one, unless the schedule is paused or has not started."""
    if record is None or record.definition != schedule.ticks.text:
        return schedule.ticks.after(now)
    if record.paused:
        return None
    return schedule.ticks.after(record.position)


def _time(ms: int | None, context: ScheduleContext) -> str:
    return format_time(ms, now=context.now) if ms else "–"
