"""The public signals, and the functions that send them after commit."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from django.dispatch import Signal

from .doorbell import ring_doorbell
from .guard import get_logger, tell
from .store.sqlite.release import Released
from .timing import moment
from .types import State

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


def tell_released(
    sender: type[Any], using: str, released: Iterable[Released], now: int, why: str
) -> None:
    """Each message is back at work, or a dead letter at its bound."""
    for message in released:
        said = f"delivery {message.delivery_count}: {why}"
        if message.state == State.DEAD_LETTERED:
            _tell_dead(sender, using, message, "MaxDeliveryCountExceeded", said)
        else:
            facts = {"visible_at": moment(now), "error": said}
            send(message_abandoned, sender, **facts, **_facts(using, message))
    ring_doorbell(using)


def tell_expired(sender: type[Any], using: str, buried: Iterable[Released]) -> None:
    """Each message is a dead letter because of its time to live."""
    for message in buried:
        _tell_dead(sender, using, message, "TTLExpired", "its time to live was over")
    ring_doorbell(using)


def _tell_dead(
    sender: type[Any], using: str, message: Released, reason: str, description: str
) -> None:
    send(
        message_dead_lettered,
        sender,
        reason=reason,
        description=description,
        content_type=message.content_type,
        exception=None,
        **_facts(using, message),
    )


def _facts(using: str, message: Released) -> dict[str, Any]:
    return {
        "queue": message.queue,
        "message_id": message.message_id,
        "using": using,
        "delivery_count": message.delivery_count,
        "subject": message.subject,
        "worker": None,
    }
