"""The most common verbs as functions: enqueue, enqueue_many, publish, and their async twins."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from django.apps import apps

if TYPE_CHECKING:
    from .exceptions import DuplicateConflict
    from .managers import MessageManager
    from .message import MessageOptions
    from .models import Message


def enqueue(
    queue: str, data: Any, *, using: str | None = None, **options: "Unpack[MessageOptions]"
) -> "Message":
    """Put a message into `queue`, in the caller's transaction if there is one, and return it.

    The options and errors are those of Message.objects.enqueue(). `using` names the database; the
    default comes from the routers.
    """
    return _messages(using).enqueue(queue, data, **options)


async def aenqueue(
    queue: str, data: Any, *, using: str | None = None, **options: "Unpack[MessageOptions]"
) -> "Message":
    """Run enqueue() from a coroutine; the arguments, result and errors are the same."""
    return await _messages(using).aenqueue(queue, data, **options)


def enqueue_many(
    queue: str,
    items: Iterable[Any],
    *,
    using: str | None = None,
    **common: "Unpack[MessageOptions]",
) -> "list[Message | DuplicateConflict]":
    """Put all of these messages into `queue`, or none; return them in the order of `items`.

    The options and errors are those of Message.objects.enqueue_many(). `using` names the database;
    the default comes from the routers.
    """
    return _messages(using).enqueue_many(queue, items, **common)


async def aenqueue_many(
    queue: str,
    items: Iterable[Any],
    *,
    using: str | None = None,
    **common: "Unpack[MessageOptions]",
) -> "list[Message | DuplicateConflict]":
    """Run enqueue_many() from a coroutine; the arguments, result and errors are the same."""
    return await _messages(using).aenqueue_many(queue, items, **common)


def publish(
    topic: str, data: Any, *, using: str | None = None, **options: "Unpack[MessageOptions]"
) -> "list[Message]":
    """Copy a message to each subscription of `topic` whose filter matches; return the copies.

    The options and errors are those of Message.objects.publish(). `using` names the database; the
    default comes from the routers.
    """
    return _messages(using).publish(topic, data, **options)


async def apublish(
    topic: str, data: Any, *, using: str | None = None, **options: "Unpack[MessageOptions]"
) -> "list[Message]":
    """Run publish() from a coroutine; the arguments, result and errors are the same."""
    return await _messages(using).apublish(topic, data, **options)


def _messages(using: str | None) -> "MessageManager[Message]":
    """Return the manager; look up the model now, because apps may not be ready at import."""
    message: type[Message] = apps.get_model("django_mqlite", "Message")
    return message.objects.db_manager(using)
