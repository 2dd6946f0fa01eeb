"""Which function handles which queue."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

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

    @property
    def path(self) -> str:
        """Where it is defined, for people."""
        return f"{self.function.__module__}.{getattr(self.function, '__qualname__', '?')}"


_handlers: dict[str, Handler] = {}


def handler(queue: str, *, atomic: bool = False) -> Callable[[F], F]:
    """Register the decorated function as the one that handles messages of `queue`.

    It is called with the Message. If it returns, the message is completed; if it raises Reject it
    is dead-lettered, Retry makes it come back after that delay, anything else after the queue's
    backoff, up to its `max_delivery_count`. Delivery is at least once: a handler whose worker dies
    after the work and before the completion is run again.

    With `atomic=True` the handler and the completion are one transaction on the queue's database:
    its writes there happen exactly once, or not at all.

    A second, different handler for a queue is ImproperlyConfigured.
    """
    if not isinstance(queue, str):
        raise ImproperlyConfigured(f"write @handler('queue-name'), not {queue!r}")

    def register(function: F) -> F:
        new = Handler(queue=queue, function=function, atomic=atomic)
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
