"""Which function handles which message: by its queue, or by its kind."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from .durations import Duration, milliseconds
from .exceptions import NoHandler

if TYPE_CHECKING:
    from .models import Message

HandlerFunction = Callable[["Message"], Awaitable[object] | object]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function and how to run it."""

    queue: str
    function: HandlerFunction
    atomic: bool = False
    max_runtime_ms: int | None = None
    is_async: bool = field(init=False)
    """Whether it runs in the process's event loop instead of a thread; asked for each message."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.function))

    @property
    def path(self) -> str:
        """Where it is defined, for people."""
        return f"{self.function.__module__}.{getattr(self.function, '__qualname__', '?')}"


_handlers: dict[str, Handler] = {}


def handler(
    queue: str, *, atomic: bool = False, max_runtime: Duration | None = None
) -> Callable[[F], F]:
    """Register the decorated function as the one that handles messages of `queue`.

    It is called with the Message. If it returns, the message is completed; if it raises Reject it
    is dead-lettered, Retry makes it come back after that delay, anything else after the queue's
    backoff, up to its `max_delivery_count`. Delivery is at least once: a handler whose worker dies
    after the work and before the completion is run again.

    With `atomic=True` the handler and the completion are one transaction on the queue's database:
    its writes there happen exactly once, or not at all.

    After `max_runtime` (a timedelta or seconds) its lease is no longer renewed: a coroutine is
    cancelled, a process of `runworker --processes` killed, and a thread can only be told, through
    `message.lease.lost`.

    An `async def` runs in the process's one event loop; it cannot be atomic. A second, different
    handler for a queue is ImproperlyConfigured.
    """
    if not isinstance(queue, str):
        raise ImproperlyConfigured(f"write @handler('queue-name'), not {queue!r}")
    max_runtime_ms = None
    if max_runtime is not None:
        max_runtime_ms = milliseconds(max_runtime, "max_runtime", least=1)

    def register(function: F) -> F:
        new = Handler(queue=queue, function=function, atomic=atomic, max_runtime_ms=max_runtime_ms)
        if new.is_async and atomic:
            raise ImproperlyConfigured(f"{new.path} is async, and Django has no async transactions")
        old = _handlers.get(queue)
        if old is not None and old.path != new.path:
            raise ImproperlyConfigured(
                f"Queue {queue!r} has two handlers, {old.path} and {new.path}. To have several "
                "react to one event, publish it to a topic with a subscription for each."
            )
        _handlers[queue] = new
        return function

    return register


def get_handlers() -> Mapping[str, Handler]:
    """Every handler by queue, after importing each installed app's `handlers` module.

    The modules that messages of other kinds need are imported as well.
    """
    autodiscover_modules("handlers")
    for kind in _kinds.values():
        kind.discover()
    return dict(_handlers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Messages that their content type tells how to handle, whatever their queue.

    `queues` names those that are to be there for them and that a worker serves by default.
    `handler_of` must not raise: what is wrong with a message is raised by its handler.
    """

    content_type: str
    handler_of: Callable[["Message"], Handler]
    queues: Callable[[], Iterable[str]]
    discover: Callable[[], None]


_kinds: dict[str, Kind] = {}


def register_kind(kind: Kind) -> None:
    """Have messages of this content type handled so."""
    _kinds[kind.content_type] = kind


def queues_of_kinds() -> set[str]:
    """The queues that messages of some kind are enqueued to."""
    return {queue for kind in _kinds.values() for queue in kind.queues()}


def handler_of(message: "Message", handlers: Mapping[str, Handler]) -> Handler:
    """What handles the message; where nothing does, a handler that says so by raising NoHandler."""
    kind = _kinds.get(message.content_type or "")
    if kind is not None:
        return kind.handler_of(message)
    return handlers.get(message.queue) or Handler(queue=message.queue, function=_refuse)


def _refuse(message: "Message") -> None:
    raise NoHandler(message.queue, message.content_type)
