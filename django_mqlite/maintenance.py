"""What the reaper does to messages, one bounded batch and one transaction at a time."""

from functools import partial
from typing import Any

from django.db import connections, transaction

from . import clock, signals
from .doorbell import ring
from .fields import moment
from .models import Message
from .store import reap
from .transactions import write_transaction
from .types import State


def release_expired(using: str, *, limit: int) -> int:
    """End at most `limit` leases that ran out: back to work, at the bound to the dead letters."""
    with write_transaction(using) as connection:
        now = clock.now_ms()
        released = reap.release_expired(connection, now=now, limit=limit)
        if released:
            transaction.on_commit(partial(_tell, using, released, now), using=using, robust=True)
    return len(released)


def activate_due(using: str, *, limit: int) -> int:
    """Make at most `limit` scheduled messages claimable whose time has come."""
    with write_transaction(using) as connection:
        count = reap.activate_due(connection, now=clock.now_ms(), limit=limit)
        if count:
            transaction.on_commit(partial(ring, using), using=using, robust=True)
    return count


def next_event_in(using: str) -> float | None:
    """Seconds until a sweep has something to do, 0 if it has now, None if nothing is to come.

    A read: it takes no write lock.
    """
    at = reap.next_event(connections[using])
    return None if at is None else max(0.0, (at - clock.now_ms()) / 1000)


def _tell(using: str, released: list[reap.Released], now: int) -> None:
    for message in released:
        _send(using, message, now)
    ring(using)


def _send(using: str, message: reap.Released, now: int) -> None:
    facts: dict[str, Any] = {
        "sender": Message,
        "queue": message.queue,
        "message_id": message.message_id,
        "using": using,
        "delivery_count": message.delivery_count,
    }
    said = f"the lease of delivery {message.delivery_count} ran out"
    if message.state == State.DEAD_LETTERED:
        signals.message_dead_lettered.send_robust(
            reason="MaxDeliveryCountExceeded", description=said, **facts
        )
    else:
        signals.message_abandoned.send_robust(visible_at=moment(now), error=said, **facts)
