"""Task options that the framework does not have, and the Task class that carries them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from .. import timing
from ..guard import safe_repr
from ..handlers import ExceptionClasses
from ..names import suggestion
from ..outcomes import Backoff, retry_policy
from ..timing import Duration, milliseconds, moment
from .compat import InvalidTask, Task

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of task_options(), which the framework does not have.

    `message_id`: the result's id, and the deduplication key within the queue's `dedup_window`.
    """

    max_attempts: int | None = None
    backoff: Backoff | None = None
    group_id: str | None = None
    message_id: str | None = None
    ttl: Duration | None = None
    unique: bool | str | None = None
    timeout: Duration | None = None
    retry_on: ExceptionClasses | None = None
    give_up_on: ExceptionClasses | None = None
    atomic: bool | None = None


NAMES = ("max_attempts", "backoff", "group_id", "message_id", "ttl", "unique", "timeout")
"""The options that a single call can set. They are stored with it, because a worker runs it."""
DURATIONS = ("backoff", "ttl", "timeout")
_ATTRIBUTE = "_mqlite_task_options"


def task_options(  # noqa: PLR0913 - the options of a task
    *,
    max_attempts: int | None = None,
    backoff: Backoff | None = None,
    retry_on: ExceptionClasses | None = None,
    give_up_on: ExceptionClasses | None = None,
    group_id: str | None = None,
    ttl: Duration | None = None,
    unique: bool | str | None = None,
    timeout: Duration | None = None,
    atomic: bool | None = None,
) -> Callable[[F], F]:
    """Set a task's options, as a decorator below `@task`. None means the queue's own setting.

    `max_attempts`: the task is FAILED after this many failed attempts, including crashes.
    `backoff`: the approximate delay after the first failure, a timedelta or seconds. It doubles
    with each further failure, up to an hour, or up to `backoff` if that is longer. Or a function
    that takes the number of the attempt and returns the delay.
    `retry_on`, `give_up_on`: exception classes. Only the first are retried, if they are given, and
    the others never; otherwise the task is FAILED at once.
    `group_id`: tasks of a group run one after the other, in the order in which they were enqueued.
    `ttl`: a timedelta or seconds; a task not started this long after it became due is FAILED.
    `unique`: while a call of the task with the same arguments is unfinished, another one returns
    its result and stores nothing. Pass True, or a format string for the arguments, such as
    "report-{0}" or "report-{customer}".
    `timeout`: a timedelta or seconds; an attempt that takes longer fails, as with @handler. It
    replaces the timeout of the queue's handler.
    `atomic`: run the task and store its result in one transaction on the queue's database. Not for
    async tasks.

    Works on every version of Django; other backends ignore it. A `message_id` identifies one call,
    so it is set by `.using(message_id=…)`. Raises InvalidTask for an invalid option.
    """
    options = checked_options(
        TaskOptions(
            max_attempts=max_attempts,
            backoff=backoff,
            retry_on=retry_on,
            give_up_on=give_up_on,
            group_id=group_id,
            ttl=ttl,
            unique=unique,
            timeout=timeout,
            atomic=atomic,
        )
    )

    def set_options(function: F) -> F:
        if isinstance(function, Task):
            raise TypeError("Write @task_options(…) below @task, directly above the function.")
        setattr(function, _ATTRIBUTE, options)
        return function

    return set_options


@dataclass(frozen=True, slots=True, kw_only=True)
class MqliteTask(Task):  # type: ignore[type-arg]
    """A Task with the options of task_options(), and with a `message_id`, the result's id.

    Set them with `.using(…)`, or with `@task(…)` except on Django 6.0.
    """

    max_attempts: int | None = None
    backoff: Duration | None = None
    group_id: str | None = None
    message_id: str | None = None
    ttl: Duration | None = None
    unique: bool | str | None = None
    timeout: Duration | None = None

    def __post_init__(self) -> None:
        if callable(self.backoff):
            raise InvalidTask(
                "Only task_options() can set backoff to a function: a call stores its options as "
                "JSON."
            )
        Task.__post_init__(self)  # super() fails: slots=True replaces this class
        for name in DURATIONS:
            value = getattr(self, name)
            if value is not None:  # normalized, because tasks are compared
                duration = timedelta(milliseconds=milliseconds(value, name))
                object.__setattr__(self, name, duration)

    def using(self, **changes: Any) -> "MqliteTask":
        """Return the task with changed options. None leaves an option unchanged.

        `run_after` is a datetime, or a timedelta from now.
        """
        options = {name: value for name, value in changes.items() if value is not None}
        known = {field.name for field in fields(self)} - {"func", "takes_context"}
        for name in options.keys() - known:
            raise TypeError(f"using() has no option {name!r}{suggestion(name, known)}")
        delay = options.get("run_after")
        if isinstance(delay, timedelta):
            options["run_after"] = moment(timing.now_ms() + milliseconds(delay, "run_after"))
        return replace(self, **options)

    # Positional-only, so that a task may have an argument named `self`.
    def enqueue(self, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue the task in the caller's transaction and return its TaskResult."""
        return self.get_backend().enqueue(self, args, kwargs)

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call enqueue() from async code."""
        return await self.get_backend().aenqueue(self, args, kwargs)

    def enqueue_many(self, drafts: "Sequence[Draft]") -> list[Any]:
        """Enqueue all drafts of the task or none, in one statement, and return their TaskResults.

        Other backends, for example in tests, enqueue them one by one.
        """
        backend: Any = self.get_backend()
        if hasattr(backend, "enqueue_many"):
            return backend.enqueue_many(self, drafts)  # type: ignore[no-any-return]
        return [backend.enqueue(self, draft.args, draft.kwargs) for draft in drafts]

    async def aenqueue_many(self, drafts: "Sequence[Draft]") -> list[Any]:
        """Call enqueue_many() from async code."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(drafts)


class Draft:
    """The arguments of one call, for enqueue_many() of a task."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


class Call:
    """A task and the arguments of one call, for enqueue_tasks()."""

    def __init__(self, task: Any, /, *args: Any, **kwargs: Any) -> None:
        if not isinstance(task, Task):
            raise TypeError(f"Call() takes a task and its arguments, not {safe_repr(task)}")
        self.task = task
        self.args = args
        self.kwargs = kwargs


def options_of(task: Any) -> TaskOptions:
    """Return the options set on the task or, by default, on its function. Accepts any Task."""
    return replace(getattr(task.func, _ATTRIBUTE, TaskOptions()), **_own_options(task))


def encode_options(task: Any) -> dict[str, Any]:
    """Return the task's options as JSON values, for workers, which cannot see `.using()`."""
    return {
        name: value.total_seconds() if name in DURATIONS else value
        for name, value in _own_options(task).items()
    }


def decode_options(encoded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that encode_options() wrote, without those unknown to this version."""
    return {name: value for name, value in encoded.items() if name in NAMES}


def stored_options(message: Any) -> dict[str, Any]:
    """Return the options that were stored with a call. Raises ValueError if they are not JSON."""
    written = (message.properties or {}).get("options")
    return decode_options(json.loads(written)) if written else {}


def _own_options(task: Any) -> dict[str, Any]:
    own = {name: getattr(task, name, None) for name in NAMES}
    return {name: value for name, value in own.items() if value is not None}


def checked_options(options: TaskOptions) -> TaskOptions:
    """Return the options; raise InvalidTask for an invalid one."""
    try:
        _check_values(options)
    except (TypeError, ValueError) as error:
        raise InvalidTask(str(error)) from error
    return options


def _check_values(options: TaskOptions) -> None:
    attempts, unique = options.max_attempts, options.unique
    if attempts is not None and not (type(attempts) is int and 0 < attempts < 2**31):
        raise ValueError(f"max_attempts must be a whole number of at least 1, not {attempts!r}")
    retry_policy(options.retry_on, options.give_up_on, options.backoff)
    if not (options.atomic is None or isinstance(options.atomic, bool)):
        raise TypeError(f"atomic must be True or False, not {options.atomic!r}")
    if not (unique is None or isinstance(unique, bool) or (isinstance(unique, str) and unique)):
        raise ValueError(
            f"unique must be True, False or a format string such as 'report-{{0}}', not {unique!r}"
        )
    for name in ("ttl", "timeout"):
        if getattr(options, name) is not None:
            milliseconds(getattr(options, name), name, minimum=1)
    for name in ("group_id", "message_id"):
        value = getattr(options, name)
        if value is not None and not (isinstance(value, str) and 0 < len(value) <= 1024):
            raise ValueError(f"{name} must be a str of 1 to 1024 characters, not {value!r}")
