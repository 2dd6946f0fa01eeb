"""Messages on their way to and from the broker."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..message import decode, encode
from ..timing import Duration, milliseconds, moment
from .transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to send: data and its options.

    `data` is stored as in Django: bytes unchanged, a str as text, anything else as JSON.
    """

    data: Any
    message_id: str = ""
    correlation_id: str = ""
    reply_to: str = ""
    group_id: str = ""
    subject: str = ""
    content_type: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the message as the broker expects it. Raises TypeError for other data."""
        body, content_type = encode(self.data, self.content_type or None)
        fields = {
            "body": b64encode(body).decode(),
            "message_id": self.message_id,
            "correlation_id": self.correlation_id,
            "reply_to": self.reply_to,
            "group_id": self.group_id,
            "subject": self.subject,
            "content_type": self.content_type or content_type,
            "properties": dict(self.properties),
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(slots=True, kw_only=True, eq=False)
class Received:
    """A message under a lease. Settle it with complete(), abandon(), reject() or defer()."""

    queue: str
    id: int
    body: bytes
    content_type: str
    message_id: str
    correlation_id: str
    reply_to: str
    group_id: str
    subject: str
    properties: Mapping[str, str]
    delivery_count: int
    enqueued_at: datetime | None
    lock_token: str = field(repr=False)
    lease_ms: int
    """The duration of the lease when the message was received, in milliseconds."""
    lost: bool = False
    """True once work() knows that the lease has ended; a long handler should check it."""
    transport: Transport = field(repr=False)

    @classmethod
    def of(cls, document: Mapping[str, Any], queue: str, transport: Transport) -> "Received":
        """Return the message in an answer of the broker."""
        text = {
            name: document.get(name, "")
            for name in (
                *("content_type", "message_id", "correlation_id", "reply_to", "group_id"),
                *("subject", "lock_token"),
            )
        }
        return cls(
            queue=queue,
            id=document["seq_number"],
            body=b64decode(document.get("body", "")),
            properties=document.get("properties", {}),
            delivery_count=document.get("delivery_count", 0),
            enqueued_at=moment(document.get("enqueued_at_ms", 0)),
            lease_ms=max(0, document.get("locked_until_ms", 0) - transport.now_ms()),
            transport=transport,
            **text,
        )

    @property
    def data(self) -> Any:
        """The body, decoded by its content type: parsed JSON, text, or bytes."""
        return decode(self.body, self.content_type)

    def complete(self) -> None:
        """Complete the message. Repeating the call is safe. Raises LeaseLost."""
        self._settle("Complete")

    def abandon(self, *, delay: Duration = 0) -> None:
        """Return the message to its queue, to be delivered again after `delay`. Raises LeaseLost.

        At its delivery limit it becomes a dead letter.
        """
        self._settle("Abandon", delay_ms=milliseconds(delay, "delay"))

    def reject(self, reason: str, description: str = "") -> None:
        """Make the message a dead letter, because it can never succeed. Raises LeaseLost."""
        self._settle("Reject", dead_letter_reason=reason, dead_letter_description=description)

    def defer(self) -> None:
        """Set the message aside until somebody receives it by its id. Raises LeaseLost."""
        self._settle("Defer")

    def renew(self) -> None:
        """Renew the lease for the duration of its queue. Raises LeaseLost."""
        self._settle("Renew")

    def _settle(self, verb: str, **options: Any) -> None:
        lease = {"queue": self.queue, "seq_number": self.id, "lock_token": self.lock_token}
        self.transport.call("QueueService", verb, {**lease, **options}, repeat=True)
