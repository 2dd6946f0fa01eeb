"""What is told of messages that were given back by others than their holders."""

from collections.abc import Iterable
from typing import Any

from . import signals
from .doorbell import ring
from .fields import moment
from .store.reap import Released
from .types import State


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
            signals.send(signals.message_abandoned, sender, **facts, **_facts(using, message))
    ring(using)


def tell_expired(sender: type[Any], using: str, buried: Iterable[Released]) -> None:
    """Each message is a dead letter because of its time to live."""
    for message in buried:
        _tell_dead(sender, using, message, "TTLExpired", "its time to live was over")
    ring(using)


def _tell_dead(
    sender: type[Any], using: str, message: Released, reason: str, description: str
) -> None:
    signals.send(
        signals.message_dead_lettered,
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
