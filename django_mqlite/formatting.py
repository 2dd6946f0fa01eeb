"""Format states, times and durations for people, in the active language and time zone."""

from typing import Any

from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .limits import Bucket, QueueLimits
from .timing import EPOCH, moment
from .types import State

STATES = {
    State.ACTIVE: gettext_lazy("active"),
    State.LOCKED: gettext_lazy("locked"),
    State.SCHEDULED: gettext_lazy("scheduled"),
    State.DEFERRED: gettext_lazy("deferred"),
    State.COMPLETED: gettext_lazy("completed"),
    State.DEAD_LETTERED: gettext_lazy("dead-lettered"),
}

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def state_label(state: str) -> str:
    """Return the label of a state; return an unknown value unchanged."""
    return str(STATES[State(state)]) if state in STATES else state


def format_duration(ms: int, *, units: int = 2) -> str:
    """Return a duration in up to `units` units, rounded down: 14 s, 3 min 20 s, 5 h, 12 d 3 h."""
    ms = abs(ms)
    if ms < MINUTE:
        return _("%(count)s s") % {"count": f"{ms / SECOND:.3g}"}
    parts = (
        (ms // DAY, _("%(count)s d")),
        (ms % DAY // HOUR, _("%(count)s h")),
        (ms % HOUR // MINUTE, _("%(count)s min")),
        (ms % MINUTE // SECOND, _("%(count)s s")),
    )
    first = next(index for index, (count, _unit) in enumerate(parts) if count)
    return " ".join(
        unit % {"count": count} for count, unit in parts[first : first + units] if count
    )


def format_time(ms: int, *, now: int) -> str:
    """Return a time such as 12:30:05 (in 14 s), with the date if it is not today."""
    at, today = localtime(moment(ms) or EPOCH), localtime(moment(now) or EPOCH).date()
    text = f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M:%S}"
    template = _("%(time)s (in %(length)s)") if ms > now else _("%(time)s (%(length)s ago)")
    return template % {"time": text, "length": format_duration(ms - now)}


def format_limits(limits: QueueLimits, *, now: int) -> list[str]:
    """Return a text for each limit of the queue: its use, or when there is room again."""
    texts = [format_in_flight(limits)] if limits.max_in_flight else []
    return texts if limits.bucket is None else [*texts, format_rate(limits.bucket, now=now)]


def format_in_flight(limits: QueueLimits) -> str:
    """Return how many leases are held, such as `2 of 3 in flight`."""
    counts = {"in_flight": limits.in_flight, "maximum": limits.max_in_flight}
    return _("%(in_flight)d of %(maximum)d in flight") % counts


def format_rate(bucket: Bucket, *, now: int) -> str:
    """Return the tokens of a rate, such as `rate 100/min: 7 of 100 tokens`."""
    rate = bucket.rate
    if bucket.tokens or bucket.next_token_at is None:
        text = _("rate %(rate)s: %(tokens)d of %(count)d tokens")
        return text % {"rate": rate, "tokens": bucket.tokens, "count": rate.count}
    time = format_duration(bucket.next_token_at - now)
    return _("rate %(rate)s: next token in %(time)s") % {"rate": rate, "time": time}


def short_error(error_class: str | None, message: str | None) -> str | None:
    """Return an error in one line, such as `KeyError: 'id'`; None if there is none."""
    return ": ".join(filter(None, (error_class, message))) or None


def format_progress(progress: Any) -> str | None:
    """Return the progress of a message, such as `40 %, page 12 of 30`; None if there is none."""
    if not isinstance(progress, dict):
        return None if progress is None else str(progress)
    fraction, text = progress.get("fraction"), progress.get("text")
    is_number = isinstance(fraction, int | float) and 0 <= fraction <= 1
    percent = f"{fraction:.0%}".replace("%", " %") if is_number else None
    return ", ".join(filter(None, (percent, str(text) if text else None))) or None


def printable(text: str) -> str:
    """Return the text on one line, with its control characters escaped.

    What a message contains must not control a terminal, and must not look like another log line.
    """
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
