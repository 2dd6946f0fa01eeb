"""Messages of every state: found and read, not touched."""

from typing import Any

from django.http import HttpRequest

from ..models import Message
from ..types import State
from .filters import QueueFilter, StateFilter
from .message_page import MessagePage

LISTED = (
    "id", "queue", "state", "subject", "group_id", "delivery_count", "enqueued_at",
)  # fmt: skip

# The order of the index that serves a queue's messages of this state.
ORDERING = {
    State.ACTIVE: ("blocked", "-priority", "id"),
    State.LOCKED: ("locked_until", "id"),
    State.SCHEDULED: ("visible_at", "id"),
    State.DEFERRED: ("id",),
    State.COMPLETED: ("-finished_at", "-id"),
    State.DEAD_LETTERED: ("-finished_at", "-id"),
}


class MessageAdmin(MessagePage):
    """The newest first; those of one queue and state in the order in which their turn comes."""

    list_display = (
        "id", "queue", "state", "short_subject", "group_id", "delivery_count", "enqueued_at",
    )  # fmt: skip
    list_filter = (QueueFilter, StateFilter)

    def get_page_queryset(self) -> Any:
        return Message.objects.only(*LISTED)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        state = request.GET.get("state")
        if request.GET.get("queue") and state in ORDERING:
            return ORDERING[State(state)]
        return ("-id",)
