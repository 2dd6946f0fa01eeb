"""What happened to messages, told once, after the commit that made it true; and its log lines.

Every signal carries `queue`, `message_id` (the sequence number) and `using`, those of one message
also `subject` and `worker`, None where that is not known; never a body. Whatever
a receiver raises is logged and stops nobody.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.dispatch import Signal

from .guard import get_logger, tell

message_completed = Signal()
"""Also `delivery_count`."""

message_abandoned = Signal()
"""A delivery failed or was interrupted, and there will be another. Also `delivery_count`,
`visible_at`, `error`."""

message_dead_lettered = Signal()
"""Also `delivery_count`, `content_type`, `reason`, `description`, and `exception`, what its handler
has raised or None. Its traceback has no local variables."""

message_deferred = Signal()
"""Set aside by its handler; claim_deferred() brings it back. Also `delivery_count`."""

messages_redriven = Signal()
"""Also `count`. One signal a batch: `queue` and `message_id` are None."""

messages_purged = Signal()
"""Also `count`. One signal a batch: `queue` and `message_id` are None."""

logger = get_logger("django_mqlite")


def send(signal: Signal, sender: type[Any], **facts: Any) -> None:
    """Send the signal under a guard: nothing that a receiver raises reaches the caller."""
    tell(partial(signal.send_robust, sender, **facts))


def _extra(queue: str, message_id: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """For handlers of logs that show more than the line. `message` is a word of logging's own."""
    return {
        "queue": queue,
        "message_id": message_id,
        "delivery": facts["delivery_count"],
        "subject": facts["subject"],
        "worker": facts["worker"],
    }


def _log_abandoned(*, queue: str, message_id: int, error: str, **facts: Any) -> None:
    logger.warning(
        "message #%s of %s will be delivered again: %s",
        message_id,
        queue,
        error,
        extra=_extra(queue, message_id, facts),
    )


def _log_dead_lettered(
    *, queue: str, message_id: int, reason: str, description: str, **facts: Any
) -> None:
    logger.error(
        "message #%s of %s is a dead letter: %s %s",
        message_id,
        queue,
        reason,
        description,
        extra={**_extra(queue, message_id, facts), "reason": reason},
    )


def connect_logging() -> None:
    """Connect the receivers that write the log; called once the apps are ready."""
    message_abandoned.connect(_log_abandoned, dispatch_uid="django_mqlite.log")
    message_dead_lettered.connect(_log_dead_lettered, dispatch_uid="django_mqlite.log")
