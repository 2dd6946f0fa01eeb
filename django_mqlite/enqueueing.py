"""New messages are stored: what enqueue, enqueue_many and publish share."""

from collections.abc import Iterator, Sequence
from typing import Any

from .exceptions import DuplicateConflict
from .store.deduplicate import original_of, remember_key
from .store.enqueue import Stored, enqueue, enqueue_many, needs_look
from .types import NewMessage

CHUNK_ROWS = 1_000
CHUNK_BYTES = 16 * 1024 * 1024
"""What one statement stores at most: a bound BLOB is copied by the driver."""


def store_fast(connection: Any, message: NewMessage, *, now: int) -> Stored | None:
    """Store it in one statement; None where the queue's window must be asked, in a transaction.

    Raises QueueNotFound, GroupRequired or PriorityRefused.
    """
    stored = enqueue(connection, message, now=now)
    if stored is None:
        needs_look(connection, message.queue, [message])
    return stored


def store_once(connection: Any, message: NewMessage, *, now: int) -> Stored | int:
    """Store it unless its key is known in the window; then the id of the original.

    For a write transaction: between the look and the insert nobody else may write. Raises
    DuplicateConflict.
    """
    original = original_of(connection, message, now=now)
    if original is not None:
        return original
    stored = enqueue(connection, message, now=now, deduplicated=True)
    if stored is None:  # the queue is gone, or its rules have changed since they were asked
        needs_look(connection, message.queue, [message])
        raise AssertionError(f"queue {message.queue!r} took no message and gave no reason")
    remember_key(connection, message, stored.id, now=now)
    return stored


def store_many(
    connection: Any, queue: str, messages: Sequence[NewMessage], *, now: int
) -> list[Stored | int | DuplicateConflict]:
    """Store all, in the order given; with a window, a conflict takes the slot of its message.

    For a write transaction. Raises QueueNotFound, GroupRequired or PriorityRefused before anything
    is written.
    """
    if needs_look(connection, queue, messages):
        return [_once_or_conflict(connection, message, now=now) for message in messages]
    stored: list[Stored | int | DuplicateConflict] = []
    for chunk in _chunks(messages):
        stored += enqueue_many(connection, chunk, now=now)
    return stored


def _once_or_conflict(
    connection: Any, message: NewMessage, *, now: int
) -> Stored | int | DuplicateConflict:
    try:
        return store_once(connection, message, now=now)
    except DuplicateConflict as conflict:
        return conflict


def _chunks(messages: Sequence[NewMessage]) -> Iterator[list[NewMessage]]:
    chunk: list[NewMessage] = []
    size = 0
    for message in messages:
        if chunk and (len(chunk) == CHUNK_ROWS or size + len(message.body) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += len(message.body)
    if chunk:
        yield chunk
