"""Subscribe to and unsubscribe from topics."""

from typing import Any

from ..arguments import checked_text
from ..conf import queue_config
from ..exceptions import NameConflict
from ..filters import MAX_FILTER, check_filter
from ..names import checked_name
from ..store import sqlite as store
from ..transactions import write_transaction
from .base import M, Verbs
from .queues import delete_messages


class TopicVerbs(Verbs[M]):
    """Subscribe to and unsubscribe from topics."""

    def subscribe(
        self,
        topic: str,
        subscription: str,
        *,
        filter: str | None = "",
        expression: str = "",
        **options: Any,
    ) -> M:
        """Copy messages that are published to `topic` into the queue `subscription`.

        `filter` is a CEL expression over the message's properties; '' matches every message, and
        None keeps the filter of a subscription that exists. `expression` is what the filter was
        translated from, if it was, and is only kept for display.
        `options` configure the queue, as in MQLITE['QUEUES']. Subscribing again only replaces
        the filter, so it does not accept options.

        Raises NameConflict if one of the names is taken, and ValueError for an invalid name or
        filter; nothing is stored in either case.
        """
        topic = checked_name(topic)
        subscription = checked_name(subscription)
        if filter is not None:
            check_filter(filter, translated=bool(expression))
        expression = checked_text(expression, "expression", min_length=0, max_length=MAX_FILTER)
        config = queue_config(options, f"subscription {subscription!r}", kind="subscription")
        with write_transaction(self.database) as (connection, now):
            if _is_new(connection, topic, subscription):
                store.queues.declare_queue(connection, subscription, config, now=now)
            elif options:
                raise ValueError(
                    f"Subscription {subscription!r} exists, and subscribing again only replaces "
                    "its filter: change its options with Queue.objects.configure()."
                )
            store.topics.SUBSCRIBE.run(
                connection,
                subscription=subscription,
                topic=topic,
                filter=filter,
                expression=expression,
                now=now,
            )
        return self.get(subscription=subscription)

    def unsubscribe(self, subscription: str) -> bool:
        """Delete the subscription and its queue with all messages; return False if neither exists.

        The messages are deleted in batches, each in its own transaction. An interrupted call
        leaves a queue without a subscription; call it again to delete the rest.
        """
        subscription = checked_text(subscription, "subscription")
        with write_transaction(self.database) as (connection, _):
            existed = store.topics.UNSUBSCRIBE.run(connection, subscription=subscription) > 0
        delete_messages(self.database, subscription, kind="subscription")
        with write_transaction(self.database) as (connection, _):
            existed |= (
                store.queues.DELETE_QUEUE.run(connection, name=subscription, kind="subscription")
                > 0
            )
        return existed


def _is_new(connection: Any, topic: str, subscription: str) -> bool:
    """Return whether the subscription has to be created; raise NameConflict if it cannot be."""
    current = store.topics.SUBSCRIPTION_TOPIC.value(connection, subscription=subscription)
    if current == topic:
        return False
    if current is not None:
        raise NameConflict(subscription, f"a subscription of topic {current!r}")
    if subscription == topic:
        raise NameConflict(subscription, "the topic itself")
    for name, allowed_owner in ((subscription, None), (topic, "a topic")):
        owner = store.topics.NAME_OWNER.value(connection, name=name)
        if owner not in (None, allowed_owner):
            raise NameConflict(name, owner)
    return True
