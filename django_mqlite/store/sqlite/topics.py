"""Topics and their subscriptions. A topic is the set of its subscriptions and stores nothing."""

from typing import NamedTuple

from .base import Connection, Statement


class Route(NamedTuple):
    """A subscription, which is also its queue's name, and its filter; '' lets everything in."""

    subscription: str
    filter: str


# Served by mqlite_subscriptions_topic (topic, subscription).
ROUTES = Statement(
    """
    SELECT subscription, filter FROM mqlite_subscriptions
     WHERE topic = %(topic)s
     ORDER BY subscription
    """,
)


def routes(connection: Connection, topic: str) -> list[Route]:
    """The subscriptions of the topic; none means there is no such topic."""
    return [Route._make(row) for row in ROUTES.all(connection, topic=topic)]


TOPIC_NAMES = Statement("SELECT DISTINCT topic FROM mqlite_subscriptions ORDER BY topic")


def topic_names(connection: Connection) -> list[str]:
    """The names of all topics, sorted."""
    return [topic for (topic,) in TOPIC_NAMES.all(connection)]


# Queues, subscriptions and topics share one namespace.
NAME_HOLDER = Statement(
    """
    SELECT CASE kind WHEN 'queue' THEN 'a queue' ELSE 'a subscription' END
      FROM mqlite_queues WHERE name = %(name)s
     UNION ALL
    SELECT 'a topic' FROM mqlite_subscriptions WHERE topic = %(name)s
     LIMIT 1
    """,
)


def name_holder(connection: Connection, name: str) -> str | None:
    """What the name stands for, in words; None if it is free."""
    row = NAME_HOLDER.one(connection, name=name)
    return row[0] if row else None


SUBSCRIPTION_TOPIC = Statement(
    "SELECT topic FROM mqlite_subscriptions WHERE subscription = %(subscription)s",
)


def subscription_topic(connection: Connection, subscription: str) -> str | None:
    """The topic the subscription is of; None if there is no such subscription."""
    row = SUBSCRIPTION_TOPIC.one(connection, subscription=subscription)
    return row[0] if row else None


SUBSCRIBE = Statement(
    """
    INSERT INTO mqlite_subscriptions (subscription, topic, filter, created_at)
    VALUES (%(subscription)s, %(topic)s, %(filter)s, %(now)s)
    ON CONFLICT (subscription) DO UPDATE SET filter = excluded.filter
    """,
)


def subscribe(
    connection: Connection, subscription: str, topic: str, filter: str, *, now: int
) -> None:
    """Add the subscription to the topic, or replace its filter and nothing else."""
    SUBSCRIBE.run(connection, subscription=subscription, topic=topic, filter=filter, now=now)


UNSUBSCRIBE = Statement("DELETE FROM mqlite_subscriptions WHERE subscription = %(subscription)s")


def unsubscribe(connection: Connection, subscription: str) -> bool:
    """Stop copies from arriving; the queue stays. Whether there was such a subscription."""
    return UNSUBSCRIBE.run(connection, subscription=subscription) > 0


# One branch a state, so that each finds its partial index; there is none over all states.
EMPTY_QUEUE = Statement(
    """
    DELETE FROM mqlite_messages
     WHERE id IN (SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'active'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'locked'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'scheduled'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'deferred'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'completed'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s
                                                   AND state = 'dead_lettered'
                   LIMIT %(limit)s)
    """,
)


def empty_queue(connection: Connection, queue: str, *, limit: int) -> int:
    """Delete at most `limit` messages of the queue, whatever their state."""
    return EMPTY_QUEUE.run(connection, queue=queue, limit=limit)


# The foreign key looks through all messages for ones of this queue; there is no index for that,
# because only this asks.
DELETE_SUBSCRIPTION_QUEUE = Statement(
    "DELETE FROM mqlite_queues WHERE name = %(name)s AND kind = 'subscription'",
)


def delete_subscription_queue(connection: Connection, name: str) -> None:
    """Delete the queue that a subscription has left behind."""
    DELETE_SUBSCRIPTION_QUEUE.run(connection, name=name)
