"""The public signals, and the functions that send them after commit.

Each signal has `queue`, `id` (the sequence number), `message_id` (the id that the sender chose, or
None), `using` (the alias of the database), `subject` and `worker` (the worker that held the lease,
or None). `sender` is the class of the message.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from django.dispatch import Signal

from .doorbell import ring_doorbell
from .formatting import printable
from .guard import get_logger
from .store.sqlite.leases import Released
from .timing import moment
from .transactions import after_commit
from .types import State

message_completed = Signal()
"""A message was completed. Adds `delivery_count`."""

message_abandoned = Signal()
"""A delivery failed or was interrupted, and the message will be delivered again. Adds
`delivery_count`, `visible_at`, `error`, and `requested`: True if the handler raised Retry, or
called abandon() without an error."""

message_dead_lettered = Signal()
"""A message became a dead letter. Adds `delivery_count`, `content_type`, `reason`, `description`,
and `exception`: what the handler raised, or None. Its traceback has no local variables."""

message_deferred = Signal()
"""A message was deferred until claim_deferred() claims it. Adds `delivery_count`."""

messages_redriven = Signal()
"""Dead letters were redriven. One signal for each batch: only `count` and `using` are set."""

messages_purged = Signal()
"""Dead letters were purged, or a queue was emptied. One signal for each batch: only `count` and
`using` are set."""

logger = get_logger("django_mqlite")


def send_after_commit(
    using: str,
    signal: Signal,
    message: Any,
    *,
    sender: type[Any] | None = None,
    worker: str | None = None,
    **facts: Any,
) -> None:
    """Send `signal` about `message` once the transaction is committed.

    `message` is an instance, or a row with the same attributes if `sender` is given. Errors of
    receivers are logged. Nothing is sent if the transaction is rolled back.
    """
    after_commit(using, partial(_send, using, signal, message, sender, worker, facts))


def _send(
    using: str,
    signal: Signal,
    message: Any,
    sender: type[Any] | None,
    worker: str | None,
    facts: Mapping[str, Any],
) -> None:
    signal.send_robust(
        sender or type(message),
        using=using,
        queue=message.queue,
        id=message.id,
        message_id=message.message_id,
        subject=message.subject,
        worker=worker,
        delivery_count=message.delivery_count,
        **facts,
    )


def send_count_after_commit(using: str, signal: Signal, sender: type[Any], count: int) -> None:
    """Send a signal about a batch of messages once the transaction is committed."""
    if count:
        facts = {"using": using, "count": count, "queue": None, "id": None, "message_id": None}
        after_commit(using, partial(signal.send_robust, sender, **facts))


def send_released_after_commit(
    using: str, released: Iterable[Released], *, sender: type[Any], now: int, reason: str
) -> None:
    """Report messages whose lease ended before they were settled: abandoned or dead letters."""
    for message in released:
        text = f"delivery {message.delivery_count}: {reason}"
        if message.state == State.DEAD_LETTERED:
            send_dead_letter_after_commit(
                using, message, sender, reason="MaxDeliveryCountExceeded", description=text
            )
        else:
            send_after_commit(
                using,
                message_abandoned,
                message,
                sender=sender,
                visible_at=moment(now),
                error=text,
                requested=False,
            )
    after_commit(using, partial(ring_doorbell, using))


def send_dead_letter_after_commit(
    using: str, message: Released, sender: type[Any], *, reason: str, description: str
) -> None:
    """Report a message that a sweep or an operator made a dead letter."""
    send_after_commit(
        using,
        message_dead_lettered,
        message,
        sender=sender,
        content_type=message.content_type,
        reason=reason,
        description=description,
        exception=None,
    )


def _log_extra(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes for the log record. `message` is reserved by logging."""
    return {
        "queue": facts["queue"],
        "id": facts["id"],
        "message_id": _printable(facts["message_id"]),
        "delivery": facts["delivery_count"],
        "subject": _printable(facts["subject"]),
        "worker": facts["worker"],
    }


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(text)


def _log_abandoned(**facts: Any) -> None:
    logger.log(
        logging.INFO if facts["requested"] else logging.WARNING,
        "message #%s of %s will be delivered again%s: %s",
        facts["id"],
        facts["queue"],
        " as its handler requested" if facts["requested"] else "",
        printable(facts["error"]),
        extra=_log_extra(facts),
    )


def _log_dead_lettered(**facts: Any) -> None:
    logger.error(
        "message #%s of %s is a dead letter: %s %s",
        facts["id"],
        facts["queue"],
        printable(facts["reason"]),
        printable(facts["description"]),
        extra={**_log_extra(facts), "reason": printable(facts["reason"])},
    )


def connect_logging() -> None:
    """Connect the receivers that write log records, once the apps are ready."""
    message_abandoned.connect(_log_abandoned, dispatch_uid="django_mqlite.log")
    message_dead_lettered.connect(_log_dead_lettered, dispatch_uid="django_mqlite.log")
