"""The two verbs of every day as functions."""

from typing import TYPE_CHECKING, Any, Unpack

from django.apps import apps

if TYPE_CHECKING:
    from .drafts import MessageOptions
    from .models import Message


def enqueue(
    queue: str, data: Any, *, using: str | None = None, **options: "Unpack[MessageOptions]"
) -> "Message":
    """Message.objects.enqueue(), on the database `using`, by default the routers'."""
    message: type[Message] = apps.get_model("django_mqlite", "Message")
    return message.objects.db_manager(using).enqueue(queue, data, **options)
