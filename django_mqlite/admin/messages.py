"""Messages of every state: found and read, not touched."""

from typing import Any

from ..models import Message
from .filters import GroupFilter, QueueFilter, StateFilter
from .message_page import MessagePage

LISTED = (
    "id", "queue", "state", "subject", "group_id", "delivery_count", "enqueued_at",
)  # fmt: skip


class MessageAdmin(MessagePage):
    """The newest first; those of a queue or a state in the order in which their turn comes."""

    list_display = (
        "id", "queue", "shown_state", "short_subject", "group_id", "delivery_count", "enqueued_at",
    )  # fmt: skip
    ordering = ("-id",)
    list_filter = (QueueFilter, StateFilter, GroupFilter)

    def get_page_queryset(self) -> Any:
        return Message.objects.only(*LISTED)
