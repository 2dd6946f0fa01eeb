"""The registry of handlers, by queue and by kind of message."""

import inspect
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import module_has_submodule

from .conf import get_settings
from .exceptions import HandlersNotImported, NoHandler, NothingHasRun
from .guard import safe_repr
from .message import TASK
from .outcomes import DEFAULT_POLICY, Backoff, RetryPolicy, retry_policy
from .schedules import Schedule
from .timing import Duration, milliseconds

ExceptionClasses = type[BaseException] | tuple[type[BaseException], ...]
HandlerFunction = Callable[[Any], Awaitable[object] | object]
F = TypeVar("F", bound=Callable[..., Any])


class SourceLocation(NamedTuple):
    """The line that registered a handler, and the import or reload of its module."""

    file: str
    line: int
    execution: object

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function and how to run it."""

    queue: str
    function: HandlerFunction
    atomic: bool = False
    timeout_ms: int | None = None
    retries: RetryPolicy = DEFAULT_POLICY
    location: SourceLocation = field(
        default=SourceLocation("?", 0, None), compare=False, repr=False
    )
    is_async: bool = field(init=False)
    """True if the handler runs in the event loop instead of a thread. Stored for speed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.function))

    @property
    def path(self) -> str:
        """The dotted path of the function, for messages to the user."""
        return f"{self.function.__module__}.{getattr(self.function, '__qualname__', '?')}"

    @property
    def is_generator(self) -> bool:
        """True if the handler is a generator function: calling it would not run its body."""
        call_method = type(self.function).__call__
        return is_generator_function(self.function) or is_generator_function(call_method)


def is_generator_function(function: object) -> bool:
    """Return whether the function is a generator function, sync or async."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def check_has_run(returned: object) -> None:
    """Raise NothingHasRun if a handler returned a generator or an awaitable instead of a result."""
    if inspect.isawaitable(returned) or isinstance(returned, Generator | AsyncGenerator):
        raise NothingHasRun(returned)


_handlers: dict[str, Handler] = {}


def handler(
    queue: str,
    *,
    atomic: bool = False,
    timeout: Duration | None = None,
    retry_on: ExceptionClasses | None = None,
    give_up_on: ExceptionClasses = (),
    backoff: Backoff | None = None,
) -> Callable[[F], F]:
    """Register the decorated function as the handler of the messages of `queue`.

    It is called with the Message. If it returns, the message is completed. If it raises Reject, the
    message becomes a dead letter; after Retry it is delivered again after the given delay, and
    after any other exception with the queue's backoff, up to its `max_delivery_count`. Messages are
    delivered at least once: if a worker dies after the work but before the completion, the handler
    runs again.

    With `atomic=True` the handler and the completion are one transaction on the queue's database:
    its writes there happen exactly once, or not at all.

    After `timeout` (a timedelta or seconds) the delivery fails with TimeoutError. A coroutine is
    cancelled, and a thread can check `message.lease.lost`; five seconds later, a process of
    `runworker --processes` is killed.

    With `retry_on`, an exception class or a tuple of them, only these exceptions are retried; those
    of `give_up_on` never are. After any other exception the message becomes a dead letter with the
    reason "NotRetried". `backoff` replaces the queue's: the delay after the first failure, which
    doubles up to an hour, or a function that takes the number of the attempt and returns the delay.

    An `async def` handler runs in the event loop of the process and cannot be atomic.

    Raises ImproperlyConfigured for a generator function, because calling it runs nothing, and if
    the queue has another handler. A delivery whose handler returns a generator or a coroutine
    fails.
    """
    if not isinstance(queue, str):
        raise ImproperlyConfigured(f"write @handler('queue-name'), not @handler({queue!r})")
    if not isinstance(atomic, bool):
        raise TypeError(f"atomic must be True or False, not {safe_repr(atomic)}")
    timeout_ms = None
    if timeout is not None:
        timeout_ms = milliseconds(timeout, "timeout", minimum=1)
    retries = retry_policy(retry_on, give_up_on, backoff)

    def register(function: F) -> F:
        new = Handler(
            queue=queue,
            function=function,
            atomic=atomic,
            timeout_ms=timeout_ms,
            retries=retries,
            location=registering_location(),
        )
        if new.is_generator:
            raise ImproperlyConfigured(
                f"{new.path} is a generator function: its body would never run. Remove the yield, "
                "because a handler returns when its work is done."
            )
        if new.is_async and atomic:
            raise ImproperlyConfigured(
                f"{new.path} is async and cannot be atomic: Django has no async transactions"
            )
        old = _handlers.get(queue)
        if old is not None and not _replaces(new, old):
            raise ImproperlyConfigured(
                f"Queue {queue!r} has two handlers, {old.path} ({old.location}) and {new.path} "
                f"({new.location}). If several must handle the same event, publish it to a topic "
                "and create a subscription for each."
            )
        _handlers[queue] = new
        return function

    return register


def registering_location() -> SourceLocation:
    """Return the line of the module that is being imported, even below other decorators.

    Each import and each reload of a module has its own spec.
    """
    caller: Any = inspect.currentframe().f_back.f_back  # type: ignore[union-attr]
    frame = caller
    while frame and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None or not _is_imported(frame.f_globals):
        frame = caller
    execution = frame.f_globals.get("__spec__") or frame.f_globals
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno, execution)


def _is_imported(module: Mapping[str, Any]) -> bool:
    """Return False for the main program and executed text, which are on the stack of every call."""
    return bool(module.get("__spec__")) and module.get("__name__") != "__main__"


def _replaces(new: Handler, old: Handler) -> bool:
    """Return whether `new` is `old`, registered again by an import or reload of its module.

    The path is not enough: functions behind one decorator share the path of its wrapper.
    """
    if new.function is old.function:
        return True
    return is_reload(new.location, old.location) and new.path == old.path


def is_reload(new: SourceLocation, old: SourceLocation) -> bool:
    """Return whether `new` belongs to another execution of the same module."""
    return new.execution is not old.execution and new.file == old.file


def get_handlers() -> Mapping[str, Handler]:
    """Return every handler by queue, after importing the modules of MQLITE['HANDLERS'].

    The default is the `handlers` module of each installed app. The modules that the registered
    message kinds need are imported too. Raises HandlersNotImported.
    """
    modules = get_settings().handlers
    import_modules(modules_of_apps("handlers") if modules is None else modules)
    for kind in _kinds.values():
        kind.discover()
    return dict(_handlers)


def modules_of_apps(name: str) -> list[str]:
    """Return the modules of this name in the installed apps."""
    return [
        f"{app.name}.{name}"
        for app in apps.get_app_configs()
        if app.module is not None and module_has_submodule(app.module, name)
    ]


def import_modules(modules: Iterable[str]) -> None:
    """Import the modules; raise HandlersNotImported with the app, the file and the line."""
    for module in modules:
        try:
            import_module(module)
        except (Exception, SystemExit) as error:  # a script may exit
            raise HandlersNotImported(_import_error_text(module, error)) from error


def _import_error_text(module: str, error: BaseException) -> str:
    app = apps.get_containing_app_config(module)
    app_text = f" of app {app.label!r}" if app else ""
    line = _failing_line(module, error)
    at = f" at {line}" if line else ""
    return f"Module {module!r}{app_text} cannot be imported: {type(error).__name__}{at}: {error}"


def _failing_line(module: str, error: BaseException) -> str | None:
    """Return the line of the module that failed, or of its syntax error."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") == module:
            return f"{frame.f_code.co_filename}, line {line}"
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    return None


Enqueue = Callable[[str, Mapping[str, str]], Any]
"""Enqueue one call on a database, with additional properties, and return its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageKind:
    """A kind of message, such as tasks, that is identified by its content type in any queue.

    `queues` returns the queues that the kind needs and that a worker serves by default.
    `handler_of` must not raise: the handler that it returns raises the error of a bad message.
    """

    content_type: str
    handler_of: Callable[[Any], Handler]
    queues: Callable[[], Iterable[str]]
    discover: Callable[[], None]
    prepare_call: Callable[[Schedule], Enqueue]
    """Check the call that a schedule makes, and return the function that enqueues it."""


_kinds: dict[str, MessageKind] = {}


def register_kind(kind: MessageKind) -> None:
    """Register the kind for messages of its content type."""
    _kinds[kind.content_type] = kind


def prepare_task(schedule: Schedule) -> Enqueue:
    """Return the function that enqueues the schedule's task, after checking the call.

    Raises ImproperlyConfigured if there is no tasks backend, or the backend's error.
    """
    kind = _kinds.get(TASK)
    if kind is None:
        raise ImproperlyConfigured(
            f"Schedule {schedule.name!r} names a task, and no entry of TASKS uses "
            "django_mqlite.task_backend.MqliteBackend."
        )
    return kind.prepare_call(schedule)


def queues_of_kinds() -> set[str]:
    """Return the queues that the registered kinds need."""
    return {queue for kind in _kinds.values() for queue in kind.queues()}


def handler_of(message: Any, handlers: Mapping[str, Handler]) -> Handler:
    """Return the handler of the message, or one that raises NoHandler if there is none."""
    if message.read_error is not None:
        return Handler(queue=message.queue, function=_raise_read_error)
    kind = _kinds.get(message.content_type or "")
    if kind is not None:
        return kind.handler_of(message)
    return handlers.get(message.queue) or Handler(queue=message.queue, function=_raise_no_handler)


def _raise_no_handler(message: Any) -> None:
    raise NoHandler(message.queue, message.content_type)


def _raise_read_error(message: Any) -> None:
    assert message.read_error is not None  # noqa: S101 - the caller checked it
    raise message.read_error
