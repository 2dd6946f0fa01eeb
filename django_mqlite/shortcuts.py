"""The verbs of every day as functions."""

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
    """Put a message into `queue`, in the caller's transaction if there is one; it has its id.

    Message.objects.enqueue(), with its options and errors, on the database `using`, by default
    the routers'.
    """
    return _messages(using).enqueue(queue, data, **options)


def enqueue_many(
    queue: str,
    items: Iterable[Any],
    *,
    using: str | None = None,
    **common: "Unpack[MessageOptions]",
) -> "list[Message | DuplicateConflict]":
    """Put all of these messages into `queue`, or none, in one statement; in the order given.

    Message.objects.enqueue_many(), with its options and errors, on the database `using`, by
    default the routers'.
    """
    return _messages(using).enqueue_many(queue, items, **common)


def publish(
    topic: str, data: Any, *, using: str | None = None, **options: "Unpack[MessageOptions]"
) -> "list[Message]":
    """Copy a message to each subscription of `topic` whose filter lets it in; the copies.

    Message.objects.publish(), with its options and errors, on the database `using`, by default
    the routers'.
    """
    return _messages(using).publish(topic, data, **options)


def _messages(using: str | None) -> "MessageManager[Message]":
    """Looked up late, so that this module can be imported before the apps are ready."""
    message: type[Message] = apps.get_model("django_mqlite", "Message")
    return message.objects.db_manager(using)
