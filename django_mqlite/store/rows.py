"""The one shape in which a message leaves the store."""

from collections.abc import Iterable
from typing import Any, NamedTuple


class MessageRow(NamedTuple):
    """A `mqlite_messages` row, in the order in which every statement returns its columns."""

    id: int
    queue: str
    state: str
    priority: int = 0
    line: str | None = None
    blocked: int = 0
    visible_at: int = 0
    enqueued_at: int = 0
    expires_at: int = 0
    locked_at: int = 0
    locked_until: int = 0
    lock_token: str | None = None
    locked_by: str | None = None
    delivery_count: int = 0
    max_delivery_count: int = 0
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    group_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    properties: str | None = None
    body: bytes = b""
    errors: str | None = None
    result: str | None = None
    finished_at: int = 0
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None


def in_claim_order(rows: Iterable[tuple[Any, ...]]) -> list[MessageRow]:
    """RETURNING gives rows in id order at best; claims are promised by priority, then id."""
    return sorted(map(MessageRow._make, rows), key=lambda row: (-row.priority, row.id))
