"""Enqueue and publish messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any, Unpack

from ..arguments import checked_text
from ..conf import get_settings
from ..doorbell import ring_doorbell
from ..exceptions import DuplicateConflict, TopicNotFound
from ..filters import filter_variables, matches
from ..guard import safe_repr
from ..message import Draft, MessageOptions, new_message
from ..names import suggestion
from ..store import sqlite as store
from ..store.sqlite.base import MessageRow
from ..store.sqlite.enqueue import Stored
from ..store.sqlite.topics import Route
from ..tracing import with_trace
from ..transactions import after_commit, write_lock, write_transaction
from ..types import NewMessage, State
from .async_twins import async_twin, has_async_twin
from .base import M, Verbs, duplicate_of, from_rows, from_stored
from .sweeps import end_expired

CHUNK_ROWS = 1_000
CHUNK_BYTES = 16 * 1024 * 1024
"""The limits of one statement, because the driver copies the BLOB that it binds."""

Duplicate = int | MessageRow
"""The id of the original in the deduplication window, or the message that has the unique key."""


def store_in_one_statement(connection: Any, message: NewMessage, *, now: int) -> Stored | None:
    """Store the message, or return None if it may be a duplicate: use store_unless_duplicate().

    Raises QueueNotFound, GroupRequired or PriorityRefused.
    """
    stored = store.enqueue.enqueue(connection, message, now=now)
    if stored is None:
        store.enqueue.check_rules(connection, message.queue, [message])
    return stored


def store_unless_duplicate(connection: Any, message: NewMessage, *, now: int) -> Stored | Duplicate:
    """Store the message, or return what it duplicates: the queue's window is checked first.

    Requires a write transaction, so that no other writer can come between check and insert. Raises
    DuplicateConflict.
    """
    original = store.duplicates.original_of(connection, message, now=now)
    if original is not None:
        return original
    for holder in _holders(connection, [message], now=now).values():
        return holder
    stored = store.enqueue.enqueue(connection, message, now=now, deduplicated=True)
    if stored is None:  # the queue or its rules have changed since they were checked
        store.enqueue.check_rules(connection, message.queue, [message])
        raise AssertionError(f"queue {message.queue!r} rejected a message without a reason")
    store.duplicates.remember_key(connection, message, stored.id, now=now)
    return stored


def store_many(
    connection: Any, queue: str, messages: Sequence[NewMessage], *, now: int
) -> list[Stored | Duplicate | DuplicateConflict]:
    """Store messages in order; with a window, a conflict is returned in place of its message.

    Requires a write transaction. Raises QueueNotFound, GroupRequired or PriorityRefused before
    anything is written.
    """
    if store.enqueue.check_rules(connection, queue, messages):
        return [_store_or_conflict(connection, message, now=now) for message in messages]
    stored: list[Stored | Duplicate | DuplicateConflict] = []
    for chunk in _chunks(messages):
        stored += _store_chunk(connection, chunk, now=now)
    return stored


def _store_chunk(
    connection: Any, chunk: Sequence[NewMessage], *, now: int
) -> Sequence[Stored | Duplicate]:
    """Store messages of one queue in one statement: the first message of each unused unique key."""
    holders = _holders(connection, chunk, now=now)
    first_index = {m.unique_key: index for index, m in reversed(list(enumerate(chunk)))}
    new_indexes = [
        index
        for index, m in enumerate(chunk)
        if m.unique_key is None
        or (m.unique_key not in holders and first_index[m.unique_key] == index)
    ]
    rows = _store_new(connection, [chunk[index] for index in new_indexes], now=now)
    stored = dict(zip(new_indexes, rows, strict=True))
    if len(stored) < len(chunk):
        holders = _holders(connection, chunk, now=now)
    return [stored.get(index) or holders[str(m.unique_key)] for index, m in enumerate(chunk)]


def _store_new(connection: Any, messages: Sequence[NewMessage], *, now: int) -> list[Stored]:
    return store.enqueue.enqueue_many(connection, messages, now=now) if messages else []


def _holders(connection: Any, messages: Sequence[NewMessage], *, now: int) -> dict[str, MessageRow]:
    """Return the unfinished messages that have the unique keys of these new ones, by key.

    A holder whose TTL has expired would never run, so it is ended.
    """
    keys = {message.unique_key for message in messages if message.unique_key is not None}
    if not keys:
        return {}
    queue = messages[0].queue
    rows = store.duplicates.holders(connection, queue, sorted(keys))
    expired = [row.id for row in rows if 0 < row.expires_at <= now and row.state != State.LOCKED]
    if expired:
        end_expired(connection.alias, queue, expired)
    return {str(row.unique_key): row for row in rows if row.id not in expired}


def _store_or_conflict(
    connection: Any, message: NewMessage, *, now: int
) -> Stored | Duplicate | DuplicateConflict:
    try:
        return store_unless_duplicate(connection, message, now=now)
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
    """Enqueue and publish messages."""

    @has_async_twin
    def enqueue(self, queue: str, data: Any, **options: Unpack[MessageOptions]) -> M:
        """Store a message in `queue`, in the caller's transaction if there is one.

        `data` is bytes, stored as they are, str, stored as UTF-8 text, or any other value, stored
        as strict JSON. Options: `delay` or `visible_at` to schedule the message, `ttl`, `priority`,
        `group_id`, `max_delivery_count`, `message_id`, `unique_key`, `correlation_id`, `reply_to`,
        `subject`, `content_type` and `properties`. Durations are timedeltas or seconds. Returns
        the stored message with its `id`.

        Calling it twice stores two messages, unless the queue has a deduplication window or an
        unfinished message has the `unique_key`: then the second call stores nothing and returns
        the first message with `duplicate` set to True.

        Raises QueueNotFound, MessageTooLarge, GroupRequired, PriorityRefused, DuplicateConflict, or
        a ValueError or TypeError that names the argument, each before anything is written.
        """
        new = self._new_message(queue, data, options)
        stored: Stored | Duplicate | None
        with write_lock(self.database) as (connection, now):
            stored = store_in_one_statement(connection, new, now=now)
        if stored is None:
            with write_transaction(self.database) as (connection, now):
                stored = store_unless_duplicate(connection, new, now=now)
        self._ring_after_commit()
        return self._instance(new, stored, now)

    aenqueue = async_twin(enqueue)

    @has_async_twin
    def enqueue_many(
        self, queue: str, items: Iterable[Any], **common: Unpack[MessageOptions]
    ) -> list[M | DuplicateConflict]:
        """Store many messages in `queue`, all or none, with ascending ids.

        Each item is the data of a message, or a Draft whose options override `common`. With a
        deduplication window, a key that was used with different data does not stop the others: the
        result contains a DuplicateConflict in its place. Raises the errors of enqueue().
        """
        queue = checked_text(queue, "queue")
        new_messages = self._new_messages(queue, items, common)
        with write_transaction(self.database) as (connection, now):
            stored = store_many(connection, queue, new_messages, now=now)
        self._ring_after_commit()
        return [
            self._instance_or_conflict(new, result, now)
            for new, result in zip(new_messages, stored, strict=True)
        ]

    aenqueue_many = async_twin(enqueue_many)

    @has_async_twin
    def publish(self, topic: str, data: Any, **options: Unpack[MessageOptions]) -> list[M]:
        """Copy a message into each subscription of `topic` whose filter matches, all or none.

        The copies share their `message_id`, which is generated if you pass none, and each has its
        own `id`. Returns [] if no filter matches. A filter that fails is logged and does not match.
        Raises TopicNotFound, and the errors of enqueue().
        """
        topic = checked_text(topic, "topic")
        if options.get("message_id") is None:
            options["message_id"] = token_hex(16)
        message = self._new_message(topic, data, options)
        with write_transaction(self.database) as (connection, now):
            queues = _matching_queues(_routes(connection, topic), message, now)
            new_messages = [replace(message, queue=queue) for queue in queues]
            stored = [_store(connection, new, now) for new in new_messages]
        self._ring_after_commit()
        return [
            self._instance(new, result, now)
            for new, result in zip(new_messages, stored, strict=True)
        ]

    apublish = async_twin(publish)

    @has_async_twin
    def publish_many(
        self, topic: str, items: Iterable[Any], **common: Unpack[MessageOptions]
    ) -> list[list[M | DuplicateConflict]]:
        """Publish many messages to `topic`, all or none; return the copies of each.

        The items are those of enqueue_many(). Copies are sorted by the name of their queue. They
        have a `message_id` only if you pass one, so a queue with a deduplication window recognizes
        equal data. A copy whose key was used with different data is not stored: the result contains
        a DuplicateConflict in its place. Raises TopicNotFound, and the errors of enqueue().
        """
        topic = checked_text(topic, "topic")
        messages = self._new_messages(topic, items, common)
        with write_transaction(self.database) as (connection, now):
            routes = _routes(connection, topic)
            copies = [
                [replace(message, queue=queue) for queue in _matching_queues(routes, message, now)]
                for message in messages
            ]
            stored = [[_store_copy(connection, copy, now) for copy in batch] for batch in copies]
        self._ring_after_commit()
        return [
            [
                self._instance_or_conflict(new, result, now)
                for new, result in zip(batch, results, strict=True)
            ]
            for batch, results in zip(copies, stored, strict=True)
        ]

    apublish_many = async_twin(publish_many)

    def _new_messages(
        self, queue: str, items: Iterable[Any], common: MessageOptions
    ) -> list[NewMessage]:
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise TypeError(f"items must be a sequence of messages, not {safe_repr(items)}")
        return [
            self._new_message(queue, item.data, {**common, **item.options})
            if isinstance(item, Draft)
            else self._new_message(queue, item, common)
            for item in items
        ]

    def _new_message(self, queue: str, data: Any, options: MessageOptions) -> NewMessage:
        known = MessageOptions.__annotations__
        for name in options.keys() - known.keys():
            raise TypeError(f"a message has no option {name!r}{suggestion(name, known)}")
        settings = get_settings()
        return with_trace(
            new_message(
                queue,
                data,
                max_body_bytes=settings.max_body_bytes,
                encoder=settings.encoder,
                **options,
            )
        )

    def _instance_or_conflict(
        self, new: NewMessage, stored: Stored | Duplicate | DuplicateConflict, now: int
    ) -> M | DuplicateConflict:
        return stored if isinstance(stored, DuplicateConflict) else self._instance(new, stored, now)

    def _instance(self, new: NewMessage, stored: Stored | Duplicate, now: int) -> M:
        if isinstance(stored, int):
            return duplicate_of(self.model, self.database, stored, new)
        if isinstance(stored, MessageRow):
            (message,) = from_rows(self.model, self.database, [stored])
            message.duplicate = True  # type: ignore[attr-defined]
            return message
        return from_stored(self.model, self.database, new, stored, now=now)

    def _ring_after_commit(self) -> None:
        alias = self.database
        after_commit(alias, partial(ring_doorbell, alias))


def _routes(connection: Any, topic: str) -> list[Route]:
    """Return the subscriptions of the topic, sorted by name; raise TopicNotFound for none."""
    routes = store.topics.routes(connection, topic)
    if not routes:
        raise TopicNotFound(topic, store.topics.topic_names(connection))
    return routes


def _matching_queues(routes: Sequence[Route], message: NewMessage, now: int) -> list[str]:
    """Return the queues of the subscriptions whose filter matches the message."""
    variables = filter_variables(message, now=now)
    return [
        route.subscription
        for route in routes
        if matches(route.filter, variables, subscription=route.subscription)
    ]


def _store(connection: Any, new: NewMessage, now: int) -> Stored | Duplicate:
    stored = store_in_one_statement(connection, new, now=now)
    return store_unless_duplicate(connection, new, now=now) if stored is None else stored


def _store_copy(
    connection: Any, new: NewMessage, now: int
) -> Stored | Duplicate | DuplicateConflict:
    try:
        return _store(connection, new, now)
    except DuplicateConflict as conflict:
        return conflict
