"""New messages: enqueue, enqueue_many, publish."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any, Unpack

from ..conf import get_settings
from ..doorbell import ring_doorbell
from ..exceptions import DuplicateConflict, TopicNotFound
from ..filters import matches, names_of
from ..message import Draft, MessageOptions, draft
from ..names import suggestion
from ..store import sqlite as store
from ..store.sqlite.enqueue import Stored
from ..transactions import after_commit, write_lock, write_transaction
from ..types import NewMessage
from .base import M, Verbs, duplicate_of, from_stored

CHUNK_ROWS = 1_000
CHUNK_BYTES = 16 * 1024 * 1024
"""What one statement stores at most: a bound BLOB is copied by the driver."""


def store_fast(connection: Any, message: NewMessage, *, now: int) -> Stored | None:
    """Store it in one statement; None where the queue's window must be asked, in a transaction.

    Raises QueueNotFound, GroupRequired or PriorityRefused.
    """
    stored = store.enqueue.enqueue(connection, message, now=now)
    if stored is None:
        store.enqueue.needs_look(connection, message.queue, [message])
    return stored


def store_once(connection: Any, message: NewMessage, *, now: int) -> Stored | int:
    """Store it unless its key is known in the window; then the id of the original.

    For a write transaction: between the look and the insert nobody else may write. Raises
    DuplicateConflict.
    """
    original = store.enqueue.original_of(connection, message, now=now)
    if original is not None:
        return original
    stored = store.enqueue.enqueue(connection, message, now=now, deduplicated=True)
    if stored is None:  # the queue is gone, or its rules have changed since they were asked
        store.enqueue.needs_look(connection, message.queue, [message])
        raise AssertionError(f"queue {message.queue!r} took no message and gave no reason")
    store.enqueue.remember_key(connection, message, stored.id, now=now)
    return stored


def store_many(
    connection: Any, queue: str, messages: Sequence[NewMessage], *, now: int
) -> list[Stored | int | DuplicateConflict]:
    """Store all, in the order given; with a window, a conflict takes the slot of its message.

    For a write transaction. Raises QueueNotFound, GroupRequired or PriorityRefused before anything
    is written.
    """
    if store.enqueue.needs_look(connection, queue, messages):
        return [_once_or_conflict(connection, message, now=now) for message in messages]
    stored: list[Stored | int | DuplicateConflict] = []
    for chunk in _chunks(messages):
        stored += store.enqueue.enqueue_many(connection, chunk, now=now)
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


class EnqueueVerbs(Verbs[M]):
    """Putting messages in."""

    def enqueue(self, queue: str, data: Any, **options: Unpack[MessageOptions]) -> M:
        """Put a message into `queue`, in the caller's transaction if there is one.

        `data`: bytes as they are, str as UTF-8 text, anything else as strict JSON. Options: `delay`
        or `visible_at` to schedule, `ttl`, `priority`, `group_id`, `max_delivery_count`,
        `message_id`, `correlation_id`, `reply_to`, `subject`, `content_type`, `properties`; lengths
        of time are timedeltas or seconds. Returns the stored message; its `id` is final.

        Called twice it stores two messages, unless the queue has a deduplication window: then the
        second is the first again, with `duplicate` true and nothing stored.

        Raises QueueNotFound, MessageTooLarge, GroupRequired, PriorityRefused, DuplicateConflict, or
        a ValueError or TypeError that names the argument, each before anything is written.
        """
        new = self._drafted(queue, data, options)
        stored: Stored | int | None
        with write_lock(self.database) as (connection, now):
            stored = store_fast(connection, new, now=now)
        if stored is None:
            with write_transaction(self.database) as (connection, now):
                stored = store_once(connection, new, now=now)
        self._ring_after_commit()
        return self._new(new, stored, now)

    def enqueue_many(
        self, queue: str, items: Iterable[Any], **common: Unpack[MessageOptions]
    ) -> list[M | DuplicateConflict]:
        """Put many messages into `queue`, all of them or none, ids in the order given.

        Each item is the data of a message, or a Draft with options of its own over `common`. With a
        deduplication window a key that is used with other data does not stop the rest: its slot
        of the answer is the DuplicateConflict. Raises what enqueue() raises.
        """
        if isinstance(items, str | bytes | Mapping):
            raise TypeError(f"items is a sequence of messages, not one {type(items).__name__}")
        news = [
            self._drafted(queue, item.data, {**common, **item.options})
            if isinstance(item, Draft)
            else self._drafted(queue, item, common)
            for item in items
        ]
        with write_transaction(self.database) as (connection, now):
            stored = store_many(connection, queue, news, now=now)
        self._ring_after_commit()
        return [
            one if isinstance(one, DuplicateConflict) else self._new(new, one, now)
            for new, one in zip(news, stored, strict=True)
        ]

    def publish(self, topic: str, data: Any, **options: Unpack[MessageOptions]) -> list[M]:
        """Copy a message into each subscription of `topic` whose filter is true, all or none.

        The copies share their `message_id` (made up if you give none) and have ids of their own. No
        match is no error: []. A filter that fails counts as false and is logged. Raises
        TopicNotFound, and what enqueue() raises.
        """
        if options.get("message_id") is None:
            options["message_id"] = token_hex(16)
        message = self._drafted(topic, data, options)
        with write_transaction(self.database) as (connection, now):
            queues = _routed(connection, topic, message, now)
            news = [replace(message, queue=queue) for queue in queues]
            stored = [_stored(connection, new, now) for new in news]
        self._ring_after_commit()
        return [self._new(new, one, now) for new, one in zip(news, stored, strict=True)]

    def _drafted(self, queue: str, data: Any, options: MessageOptions) -> NewMessage:
        known = MessageOptions.__annotations__
        for name in options.keys() - known.keys():
            raise TypeError(f"a message has no option {name!r}{suggestion(name, known)}")
        return draft(queue, data, max_body_bytes=get_settings().max_body_bytes, **options)

    def _new(self, new: NewMessage, stored: Stored | int, now: int) -> M:
        if isinstance(stored, int):
            return duplicate_of(self.model, self.database, stored, new)
        return from_stored(self.model, self.database, new, stored, now=now)

    def _ring_after_commit(self) -> None:
        alias = self.database
        after_commit(alias, partial(ring_doorbell, alias))


def _routed(connection: Any, topic: str, message: NewMessage, now: int) -> list[str]:
    """Return the queues of the subscriptions that want the message."""
    found = store.topics.routes(connection, topic)
    if not found:
        raise TopicNotFound(topic, store.topics.topic_names(connection))
    names = names_of(message, now=now)
    return [
        route.subscription
        for route in found
        if matches(route.filter, names, subscription=route.subscription)
    ]


def _stored(connection: Any, new: NewMessage, now: int) -> Stored | int:
    stored = store_fast(connection, new, now=now)
    return store_once(connection, new, now=now) if stored is None else stored
