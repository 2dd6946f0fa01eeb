"""What a task may say beyond the framework's own options, and the Task that carries it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from ..durations import Duration, milliseconds
from .compat import InvalidTask, Task

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What a message can do and the framework has no word for, as task_options() explains it.

    `message_id`: the result's id, and the key by which the queue's `dedup_window` tells a repeat.
    """

    max_attempts: int | None = None
    backoff: Duration | None = None
    group_id: str | None = None
    message_id: str | None = None
    ttl: Duration | None = None


NAMES = tuple(field.name for field in fields(TaskOptions))
LENGTHS_OF_TIME = ("backoff", "ttl")
_ATTRIBUTE = "_mqlite_task_options"


def task_options(
    *,
    max_attempts: int | None = None,
    backoff: Duration | None = None,
    group_id: str | None = None,
    ttl: Duration | None = None,
) -> Callable[[F], F]:
    """Set options of a task, on the function below `@task`. None is the queue's way.

    `max_attempts`: after so many failed attempts, crashes included, the task is FAILED.
    `backoff`: about how long it rests after the first of them, timedelta or seconds. The rest
    doubles with each further one, up to an hour, or up to `backoff` itself where that is longer.
    `group_id`: one after the other within the group, in the order of their enqueueing.
    `ttl`: not begun so long after its time (timedelta or seconds) it is FAILED without an attempt.

    The way that works on every Django and whatever backend is configured: another one does not see
    it. For a `message_id`, which is one call's own, there is `.using(message_id=…)`. Raises
    InvalidTask for a wrong option.
    """
    options = checked(
        TaskOptions(max_attempts=max_attempts, backoff=backoff, group_id=group_id, ttl=ttl)
    )

    def note(function: F) -> F:
        if isinstance(function, Task):
            raise TypeError("write @task_options(…) below @task, on the function")
        setattr(function, _ATTRIBUTE, options)
        return function

    return note


@dataclass(frozen=True, slots=True, kw_only=True)
class MqliteTask(Task):  # type: ignore[type-arg]
    """A Task with the options of task_options(), and with a `message_id`: the result's id.

    They go into `.using(…)`, and into `@task(…)` (not on Django 6.0).
    """

    max_attempts: int | None = None
    backoff: Duration | None = None
    group_id: str | None = None
    message_id: str | None = None
    ttl: Duration | None = None

    def __post_init__(self) -> None:
        Task.__post_init__(self)  # no super(): a dataclass with slots is another class than this
        for name in LENGTHS_OF_TIME:
            value = getattr(self, name)
            if value is not None:  # alike however it was said: tasks are compared
                alike = timedelta(milliseconds=milliseconds(value, name))
                object.__setattr__(self, name, alike)

    def using(self, **changes: Any) -> "MqliteTask":
        """A Task with other options, the framework's or these. None leaves one as it is."""
        said = {name: value for name, value in changes.items() if value is not None}
        known = {field.name for field in fields(self)} - {"func", "takes_context"}
        for name in said.keys() - known:
            raise TypeError(f"using() has no option {name!r}; it has {', '.join(sorted(known))}")
        return replace(self, **said)

    # Positional only, so that a task may have arguments that are called self.
    def enqueue(self, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call of the task, in the caller's transaction; its TaskResult."""
        return self.get_backend().enqueue(self, args, kwargs)

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> Any:
        """The same in async code."""
        return await self.get_backend().aenqueue(self, args, kwargs)

    def enqueue_many(self, calls: "list[Call]") -> list[Any]:
        """Enqueue all these calls of the task or none, in one statement; their TaskResults.

        A backend of another kind, in tests say, enqueues them one by one.
        """
        backend: Any = self.get_backend()
        if hasattr(backend, "enqueue_many"):
            return backend.enqueue_many(self, calls)  # type: ignore[no-any-return]
        return [backend.enqueue(self, call.args, call.kwargs) for call in calls]

    async def aenqueue_many(self, calls: "list[Call]") -> list[Any]:
        """The same in async code."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(calls)


class Call:
    """The arguments of one call, for enqueue_many()."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


def options_of(task: Any) -> TaskOptions:
    """What the task says, else what its function says. A Task of any backend has options."""
    return replace(getattr(task.func, _ATTRIBUTE, TaskOptions()), **_own_options(task))


def written_options(task: Any) -> dict[str, Any]:
    """The task's own options for JSON: a worker has its code, and not what `.using()` has said."""
    return {
        name: value.total_seconds() if name in LENGTHS_OF_TIME else value
        for name, value in _own_options(task).items()
    }


def read_options(written: Mapping[str, Any]) -> dict[str, Any]:
    """What written_options() wrote, without what this code does not know."""
    return {name: value for name, value in written.items() if name in NAMES}


def _own_options(task: Any) -> dict[str, Any]:
    own = {name: getattr(task, name, None) for name in NAMES}
    return {name: value for name, value in own.items() if value is not None}


def checked(options: TaskOptions) -> TaskOptions:
    """The options, or InvalidTask with the one that is wrong."""
    try:
        attempts = options.max_attempts
        if attempts is not None and not (type(attempts) is int and 0 < attempts < 2**31):
            raise ValueError(f"max_attempts is a whole number of at least 1, not {attempts!r}")
        if options.backoff is not None:
            milliseconds(options.backoff, "backoff")
        if options.ttl is not None:
            milliseconds(options.ttl, "ttl", least=1)
        for name in ("group_id", "message_id"):
            value = getattr(options, name)
            if value is not None and not (isinstance(value, str) and 0 < len(value) <= 1024):
                raise ValueError(f"{name} is a str of 1 to 1024 characters, not {value!r}")
    except (TypeError, ValueError) as error:
        raise InvalidTask(str(error)) from error
    return options
