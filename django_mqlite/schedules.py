"""Recurring schedules and their options, validated before anything uses them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypedDict

from .guard import safe_repr
from .message import encode_json, new_message
from .names import check_options, checked_name
from .ticks import Cron, Every, Ticks
from .timing import Duration, moment
from .types import MAX_INTEGER

CATCH_UP = ("latest", "none", "all")
OVERLAP = ("allow", "skip")

MAX_CAUGHT_UP = 100
"""The most missed ticks that `catch_up="all"` enqueues."""

LATE_AFTER_MS = 60_000
"""A tick that is dispatched later than this is missed, for `catch_up="none"`."""


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule: when it ticks, and what each tick enqueues."""

    cron: str
    """A cron expression of five fields, or of six with seconds first. Not with `every`."""
    every: Duration
    """The period, a timedelta or seconds, at least 1 s. Ticks are its multiples since 1970."""
    phase: Duration
    """The offset of the ticks of `every`."""
    timezone: str
    """The time zone of `cron`, by default TIME_ZONE."""
    task: str
    """The dotted path of the task to enqueue. Not with `data`."""
    args: list[Any] | tuple[Any, ...]
    """The positional arguments of the task."""
    kwargs: Mapping[str, Any]
    """The keyword arguments of the task."""
    queue: str
    """The queue; for a task, instead of the task's own."""
    data: Any
    """The data of the message; by default None."""
    priority: int
    """As in enqueue()."""
    group_id: str | None
    """As in enqueue(); not for a task."""
    subject: str | None
    """As in enqueue(); not for a task."""
    ttl: Duration | None
    """As in enqueue(); not for a task."""
    max_delivery_count: int | None
    """As in enqueue(); not for a task."""
    correlation_id: str | None
    """As in enqueue(); not for a task."""
    reply_to: str | None
    """As in enqueue(); not for a task."""
    content_type: str | None
    """As in enqueue(); not for a task."""
    properties: Mapping[str, str] | None
    """As in enqueue(); not for a task."""
    catch_up: str
    """What to enqueue for missed ticks: "latest" (one message, the default), "none" or "all"."""
    overlap: str
    """"skip" enqueues nothing while the previous message is unfinished; the default is "allow"."""


TASK_OPTIONS = ("task", "args", "kwargs", "queue", "priority")
MESSAGE_OPTIONS = (
    "queue", "data", "priority", "group_id", "subject", "ttl", "max_delivery_count",
    "correlation_id", "reply_to", "content_type", "properties",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A recurring schedule: its ticks, and the task or message that each tick enqueues.

    `options` are those of the message, or of the task's `using()`.
    """

    name: str
    ticks: Ticks
    task: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    data: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    catch_up: str = "latest"
    overlap: str = "allow"

    @property
    def target(self) -> str:
        """The task or the queue, for people."""
        return self.task or str(self.queue)

    def to_enqueue(self, *, after: int, until: int) -> tuple[list[int], bool]:
        """Return the ticks after `after` to enqueue at `until`, and whether others were missed."""
        limit = MAX_CAUGHT_UP if self.catch_up == "all" else 1
        ticks = self.ticks.last(after=after, until=until, limit=limit + 1)
        due = ticks[-limit:]
        if self.catch_up == "none":
            due = [tick for tick in due if until - tick <= LATE_AFTER_MS]
        return due, len(due) < len(ticks)


def read_schedule(name: Any, options: Any, where: str, *, timezone: str) -> Schedule:
    """Return the schedule; raise TypeError or ValueError, naming `where`, for an invalid option."""
    name = checked_name(name, "schedule")
    check_options(options, ScheduleOptions.__annotations__, where)
    common = {
        "name": name,
        "ticks": read_ticks(options, where, timezone=timezone),
        "catch_up": _choice(options, "catch_up", CATCH_UP, where),
        "overlap": _choice(options, "overlap", OVERLAP, where),
    }
    if "task" in options:
        return Schedule(**common, **_task(options, where))
    if "queue" in options:
        return Schedule(**common, **_message(options, where))
    raise ValueError(f"{where} must have either 'task' or 'queue'")


def read_ticks(options: Mapping[str, Any], where: str, *, timezone: str) -> Ticks:
    """Return the ticks; raise TypeError or ValueError, naming `where`, for an invalid option."""
    if ("cron" in options) == ("every" in options):
        raise ValueError(f"{where} must have either 'cron' or 'every'")
    if "cron" in options:
        _refuse(options, ("phase",), where, "'phase' needs 'every'")
        return Cron.parse(options["cron"], options.get("timezone", timezone), where)
    _refuse(options, ("timezone",), where, "'timezone' needs 'cron'")
    return Every.parse(options["every"], options.get("phase", timedelta()), where)


def _refuse(options: Mapping[str, Any], names: tuple[str, ...], where: str, why: str) -> None:
    for name in names:
        if name in options:
            raise ValueError(f"{where} cannot have {name!r}: {why}")


def _choice(options: Mapping[str, Any], name: str, known: tuple[str, ...], where: str) -> str:
    value = options.get(name, known[0])
    if value not in known:
        raise ValueError(
            f"{where}[{name!r}] must be one of {', '.join(known)}, not {safe_repr(value)}"
        )
    return str(value)


def _task(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    others = tuple(name for name in MESSAGE_OPTIONS if name not in TASK_OPTIONS)
    _refuse(options, others, where, "it is for messages; set it on the task")
    path = options["task"]
    if not isinstance(path, str) or not all(part.isidentifier() for part in path.split(".")):
        raise ValueError(
            f"{where}['task'] must be the path of a task, such as 'shop.tasks.report', not "
            f"{safe_repr(path)}"
        )
    args, kwargs = options.get("args", ()), options.get("kwargs", {})
    if not isinstance(args, list | tuple):
        raise TypeError(f"{where}['args'] must be a list, not {safe_repr(args)}")
    if not isinstance(kwargs, Mapping):
        raise TypeError(f"{where}['kwargs'] must be a dict, not {safe_repr(kwargs)}")
    encode_json([list(args), dict(kwargs)], f"{where}, args and kwargs")
    if "queue" in options:
        checked_name(options["queue"])
    return {
        "task": path,
        "args": tuple(args),
        "kwargs": MappingProxyType(dict(kwargs)),
        "queue": options.get("queue"),
        "options": {"priority": options["priority"]} if "priority" in options else {},
    }


def _message(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    _refuse(options, ("args", "kwargs"), where, "it is for tasks; use 'data'")
    checked_name(options["queue"])
    own = {
        name: options[name]
        for name in MESSAGE_OPTIONS
        if name in options and name not in ("queue", "data")
    }
    try:
        new_message(options["queue"], options.get("data"), max_body_bytes=MAX_INTEGER, **own)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from error
    return {"queue": options["queue"], "data": options.get("data"), "options": own}


def properties_of(name: str, tick: int) -> dict[str, str]:
    """Return the properties of a message that a schedule enqueues: its name, and the tick."""
    at = moment(tick)
    return {"schedule": name, "scheduled_for": at.isoformat() if at else ""}
