"""Task options that the framework does not have, and the Task class that carries them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from ..checks import linked_hints
from ..conf import get_settings
from ..names import checked_name, suggestion_sentence
from ..timing import Duration, milliseconds
from .compat import InvalidTask, Task

DEFAULT_RESULT_TTL_MS = 7 * 24 * 3_600_000
OPTIONS = ("RESULT_TTL",)


def result_ttl_ms(alias: str, options: Mapping[str, Any]) -> int:
    """Return RESULT_TTL in milliseconds, or 0 to keep no results; raise ImproperlyConfigured."""
    if "RESULT_TTL" not in options:
        return DEFAULT_RESULT_TTL_MS
    try:
        return milliseconds(options["RESULT_TTL"], f"TASKS[{alias!r}]['OPTIONS']['RESULT_TTL']")
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(str(error)) from error


def served_queues(queues: Iterable[str]) -> set[str]:
    """Return the queues of a backend. An empty QUEUES allows every declared queue."""
    return set(queues) or set(get_settings().queues)


def check_backend(backend: Any) -> list[CheckMessage]:
    """Return the mistakes in the backend's entry of TASKS."""
    return linked_hints([*check_installed(), *_check_options(backend), *_check_queues(backend)])


def check_installed() -> Iterator[CheckMessage]:
    """Check that the app is installed: the backend alone has no tables."""
    if not apps.is_installed("django_mqlite"):
        yield Error(
            "TASKS names the backend of django_mqlite, which is not in INSTALLED_APPS.",
            hint="Add 'django_mqlite' to INSTALLED_APPS and run `manage.py migrate`.",
            id="mqlite.E008",
        )


def _check_options(backend: Any) -> Iterator[CheckMessage]:
    where = f"TASKS[{backend.alias!r}]['OPTIONS']"
    for name in backend.options:
        if name not in OPTIONS:
            hint = suggestion_sentence(name, OPTIONS).strip() or f"Known: {', '.join(OPTIONS)}."
            yield Error(f"{where} has no option {name!r}.", hint=hint, id="mqlite.E005")
    try:
        result_ttl_ms(backend.alias, backend.options)
    except ImproperlyConfigured as error:
        yield Error(f"{error}.", hint="Give a timedelta or seconds.", id="mqlite.E005")


def _check_queues(backend: Any) -> Iterator[CheckMessage]:
    where = f"TASKS[{backend.alias!r}]['QUEUES']"
    for name in sorted(backend.queues, key=str):
        try:
            checked_name(name)
        except ValueError as error:
            yield Error(f"{where}: {error}.", id="mqlite.E006")
    yield from _check_windows(backend, where)


def _check_windows(backend: Any, where: str) -> Iterator[CheckMessage]:
    try:
        declared = get_settings().queues
        ttl = result_ttl_ms(backend.alias, backend.options)
    except ImproperlyConfigured:
        return  # reported by another check
    for name in sorted(served_queues(backend.queues) & declared.keys()):
        if declared[name].dedup_window_ms > ttl:
            yield Warning(
                f"{where}: queue {name!r} tells repeats for longer than a result is kept: the "
                "second enqueue of a unique task may find no result to give back.",
                hint="Make RESULT_TTL at least as long as the queue's dedup_window.",
                id="mqlite.W012",
            )


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of task_options(), which the framework does not have.

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
            if value is not None:  # normalized, because tasks are compared
                alike = timedelta(milliseconds=milliseconds(value, name))
                object.__setattr__(self, name, alike)

    def using(self, **changes: Any) -> "MqliteTask":
        """A Task with other options, the framework's or these. None leaves one as it is."""
        said = {name: value for name, value in changes.items() if value is not None}
        known = {field.name for field in fields(self)} - {"func", "takes_context"}
        for name in said.keys() - known:
            raise TypeError(f"using() has no option {name!r}; it has {', '.join(sorted(known))}")
        return replace(self, **said)

    # Positional-only, so that a task may have an argument named `self`.
    def enqueue(self, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueue the task in the caller's transaction and return its TaskResult."""
        return self.get_backend().enqueue(self, args, kwargs)

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call enqueue() from async code."""
        return await self.get_backend().aenqueue(self, args, kwargs)

    def enqueue_many(self, drafts: "list[Call]") -> list[Any]:
        """Enqueue all drafts of the task or none, in one statement, and return their TaskResults.

        Other backends, for example in tests, enqueue them one by one.
        """
        backend: Any = self.get_backend()
        if hasattr(backend, "enqueue_many"):
            return backend.enqueue_many(self, drafts)  # type: ignore[no-any-return]
        return [backend.enqueue(self, draft.args, draft.kwargs) for draft in drafts]

    async def aenqueue_many(self, drafts: "list[Call]") -> list[Any]:
        """Call enqueue_many() from async code."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(drafts)


class Call:
    """The arguments of one task to enqueue, for enqueue_many()."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


def options_of(task: Any) -> TaskOptions:
    """Return the options of the task, or else of its function. Tasks of any backend have some."""
    return replace(getattr(task.func, _ATTRIBUTE, TaskOptions()), **_own_options(task))


def written_options(task: Any) -> dict[str, Any]:
    """Return the task's options for JSON, because a worker cannot see options set by `.using()`."""
    return {
        name: value.total_seconds() if name in LENGTHS_OF_TIME else value
        for name, value in _own_options(task).items()
    }


def read_options(written: Mapping[str, Any]) -> dict[str, Any]:
    """Read what written_options() wrote, ignoring options that this code does not know."""
    return {name: value for name, value in written.items() if name in NAMES}


def _own_options(task: Any) -> dict[str, Any]:
    own = {name: getattr(task, name, None) for name in NAMES}
    return {name: value for name, value in own.items() if value is not None}


def checked(options: TaskOptions) -> TaskOptions:
    """Return the options; raise InvalidTask for an invalid one."""
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
