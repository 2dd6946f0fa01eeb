"""New messages: enqueue, enqueue_many, publish."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Unpack

from .. import clock
from ..conf import get_settings
from ..doorbell import ring
from ..drafts import Draft, MessageOptions, draft
from ..enqueueing import store_fast, store_many, store_once
from ..exceptions import DuplicateConflict, TopicNotFound
from ..filters import lets_in, names_of
from ..names import meant
from ..store.enqueue import Stored
from ..store.topics import routes, topic_names
from ..transactions import after_commit, write_lock, write_transaction
from ..types import NewMessage
from .base import VerbManager
from .rows import duplicate_of, from_stored

if TYPE_CHECKING:
    from ..models import Message


class EnqueueVerbs(VerbManager["Message"]):
    """Putting messages in."""

    def enqueue(self, queue: str, data: Any, **options: Unpack[MessageOptions]) -> "Message":
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
        with write_lock(self.using_alias) as connection:
            now = clock.now_ms()
            stored = store_fast(connection, new, now=now)
        if stored is None:
            with write_transaction(self.using_alias) as connection:
                now = clock.now_ms()
                stored = store_once(connection, new, now=now)
        self._ring_after_commit()
        return self._new(new, stored, now)

    def enqueue_many(
        self, queue: str, items: Iterable[Any], **common: Unpack[MessageOptions]
    ) -> list["Message | DuplicateConflict"]:
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
        with write_transaction(self.using_alias) as connection:
            now = clock.now_ms()
            stored = store_many(connection, queue, news, now=now)
        self._ring_after_commit()
        return [
            one if isinstance(one, DuplicateConflict) else self._new(new, one, now)
            for new, one in zip(news, stored, strict=True)
        ]

    def publish(self, topic: str, data: Any, **options: Unpack[MessageOptions]) -> list["Message"]:
        """Copy a message into each subscription of `topic` whose filter is true, all or none.

        The copies share their `message_id` (made up if you give none) and have ids of their own. No
        match is no error: []. A filter that fails counts as false and is logged. Raises
        TopicNotFound, and what enqueue() raises.
        """
        if options.get("message_id") is None:
            options["message_id"] = token_hex(16)
        message = self._drafted(topic, data, options)
        with write_transaction(self.using_alias) as connection:
            now = clock.now_ms()
            queues = _routed(connection, topic, message, now)
            news = [replace(message, queue=queue) for queue in queues]
            stored = [_stored(connection, new, now) for new in news]
        self._ring_after_commit()
        return [self._new(new, one, now) for new, one in zip(news, stored, strict=True)]

    def _drafted(self, queue: str, data: Any, options: MessageOptions) -> NewMessage:
        known = MessageOptions.__annotations__
        for name in options.keys() - known.keys():
            raise TypeError(f"a message has no option {name!r}{meant(name, known)}")
        return draft(queue, data, max_body_bytes=get_settings().max_body_bytes, **options)

    def _new(self, new: NewMessage, stored: Stored | int, now: int) -> "Message":
        if isinstance(stored, int):
            return duplicate_of(self.model, self.using_alias, stored, new)
        return from_stored(self.model, self.using_alias, new, stored, now=now)

    def _ring_after_commit(self) -> None:
        alias = self.using_alias
        after_commit(alias, partial(ring, alias))


def _routed(connection: Any, topic: str, message: NewMessage, now: int) -> list[str]:
    """Return the queues of the subscriptions that want the message."""
    found = routes(connection, topic)
    if not found:
        raise TopicNotFound(topic, topic_names(connection))
    names = names_of(message, now=now)
    return [
        route.subscription
        for route in found
        if lets_in(route.filter, names, subscription=route.subscription)
    ]


def _stored(connection: Any, new: NewMessage, now: int) -> Stored | int:
    stored = store_fast(connection, new, now=now)
    return store_once(connection, new, now=now) if stored is None else stored
