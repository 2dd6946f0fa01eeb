"""The decorator @periodic, and every schedule of the project: from settings and decorators."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from .conf import configured_schedule, get_settings
from .handlers import SourceLocation, get_handlers, is_reload, registering_location
from .schedules import Schedule, ScheduleOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic:
    """A schedule that @periodic declares beside its task or handler."""

    name: str
    target: Any
    options: Mapping[str, Any]
    location: SourceLocation

    @property
    def where(self) -> str:
        """The declaration, for errors."""
        return f"@periodic {self.name!r}"

    def schedule(self) -> Schedule:
        """Return the schedule. The target is known only once its module is imported."""
        return configured_schedule(self.name, {**self._target(), **self.options}, self.where)

    def _target(self) -> dict[str, str]:
        if task := _path_of_task(self.target):
            return {"task": task}
        queues = [
            queue
            for queue, handler in get_handlers().items()
            if handler.function is self.target and self.options.get("queue", queue) == queue
        ]
        if len(queues) != 1:
            raise ImproperlyConfigured(
                f"{self.where} ({self.location}) must decorate a task, or the handler of one queue"
                + (f"; this one handles {', '.join(queues)}: pass queue=" if queues else "")
            )
        return {"queue": queues[0]}


def _path_of_task(target: Any) -> str | None:
    """Return the path of the task that `target` is, or whose function it is; None otherwise."""
    if isinstance(path := getattr(target, "module_path", None), str):
        return path
    path = f"{target.__module__}.{target.__qualname__}"
    try:
        found = import_string(path)
    except ImportError:
        return None
    return path if getattr(found, "func", None) is target else None


_declared: dict[str, Periodic] = {}


def periodic(*, name: str | None = None, **options: Unpack[ScheduleOptions]) -> Callable[[T], T]:
    """Declare a recurring schedule for the decorated task or handler.

    `options` are those of MQLITE['SCHEDULES']; the task or the queue is known from what is
    decorated. `name` is unique in the project; the default is the path of the function.

    Write it above or below `@task` or `@handler`. Repeat it, with names, for several schedules.
    Raises ImproperlyConfigured for an invalid option, or if another schedule has the name.
    """

    def declare(target: T) -> T:
        function: Any = getattr(target, "func", target)
        declared = Periodic(
            name=name or f"{function.__module__}.{function.__qualname__}",
            target=target,
            options=dict(options),
            location=registering_location(),
        )
        # The target is not known yet if @task or @handler is above this decorator.
        is_task = hasattr(target, "module_path") or {"args", "kwargs"} & options.keys()
        unknown = {"task": "unknown"} if is_task else {"queue": "unknown"}
        configured_schedule(declared.name, {**unknown, **options}, declared.where)
        before = _declared.get(declared.name)
        if before is not None and not is_reload(declared.location, before.location):
            raise ImproperlyConfigured(
                f"Schedule {declared.name!r} is declared twice: at {before.location} and at "
                f"{declared.location}. Pass another name=."
            )
        _declared[declared.name] = declared
        return target

    return declare


def all_schedules() -> dict[str, Schedule]:
    """Return every schedule by name, after importing the modules with handlers and tasks.

    Raises HandlersNotImported, and ImproperlyConfigured if two schedules have the same name or a
    decorated function is neither a task nor a handler.
    """
    get_handlers()
    schedules = dict(get_settings().schedules)
    for name, declared in _declared.items():
        if name in schedules:
            raise ImproperlyConfigured(
                f"Schedule {name!r} is declared twice: in MQLITE['SCHEDULES'] and at "
                f"{declared.location}."
            )
        schedules[name] = declared.schedule()
    return schedules
