"""Which function handles which queue."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from .durations import Duration, milliseconds

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

    @property
    def is_async(self) -> bool:
        """Whether it runs in the process's event loop instead of a thread."""
        return inspect.iscoroutinefunction(self.function)

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
    """Every handler by queue, after importing each installed app's `handlers` module."""
    autodiscover_modules("handlers")
    return dict(_handlers)
