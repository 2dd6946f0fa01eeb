"""Subscribe and unsubscribe."""

from typing import Any

from ..conf import queue_config
from ..exceptions import NameConflict
from ..filters import check_filter
from ..names import checked_name
from ..store import sqlite as store
from ..transactions import write_transaction, yield_to_other_writers
from .base import BATCH, M, Verbs


class SubscriptionManager(Verbs[M]):
    """A topic is the set of its subscriptions; each has a queue of its own name."""

    def subscribe(self, topic: str, subscription: str, *, filter: str = "", **options: Any) -> M:
        """Have what is published to `topic` copied into the queue `subscription`.

        `filter` is a CEL expression over the message's properties, '' for everything; `options` are
        those of MQLITE['QUEUES'], for the queue. Subscribing again replaces the filter and nothing
        else: options are then refused. Raises NameConflict where one of the names is taken, and
        ValueError for a name or filter that cannot be one; nothing is left behind.
        """
        checked_name(topic)
        checked_name(subscription)
        check_filter(filter)
        config = queue_config(options, f"subscription {subscription!r}", kind="subscription")
        with write_transaction(self.database) as (connection, now):
            if self._is_new(connection, topic, subscription):
                store.queues.declare_queue(connection, subscription, config, now=now)
            elif options:
                raise ValueError(
                    f"subscription {subscription!r} exists: subscribing again replaces its filter "
                    "only; configure its queue with Queue.objects.configure()"
                )
            store.topics.subscribe(connection, subscription, topic, filter, now=now)
        return self.get(subscription=subscription)

    def unsubscribe(self, subscription: str) -> bool:
        """Delete the subscription, then its queue with every message in it; False for none.

        In batches, each a transaction of its own: interrupted, it leaves a queue without a
        subscription, and can be called again.
        """
        with write_transaction(self.database) as (connection, _):
            known = store.topics.unsubscribe(connection, subscription)
        while self._empty(subscription) == BATCH:
            pass
        with write_transaction(self.database) as (connection, _):
            store.topics.delete_subscription_queue(connection, subscription)
        return known

    def _empty(self, subscription: str) -> int:
        with (
            yield_to_other_writers(self.database),
            write_transaction(self.database) as (connection, _),
        ):
            if store.topics.name_holder(connection, subscription) != "a subscription":
                return 0
            return store.topics.empty_queue(connection, subscription, limit=BATCH)

    def _is_new(self, connection: Any, topic: str, subscription: str) -> bool:
        of_topic = store.topics.subscription_topic(connection, subscription)
        if of_topic == topic:
            return False
        if of_topic is not None:
            raise NameConflict(subscription, f"a subscription of topic {of_topic!r}")
        if subscription == topic:
            raise NameConflict(subscription, "the topic itself")
        for name, may_be in ((subscription, None), (topic, "a topic")):
            holder = store.topics.name_holder(connection, name)
            if holder not in (None, may_be):
                raise NameConflict(name, str(holder))
        return True
