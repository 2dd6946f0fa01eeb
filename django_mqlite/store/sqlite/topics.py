"""Topics and their subscriptions. A topic is the set of its subscriptions and stores nothing."""

from typing import NamedTuple

from .base import Connection, Statement


class Route(NamedTuple):
    """A subscription and its filter; '' matches everything. Its queue has the same name."""

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
    """Return the subscriptions of the topic. A topic without subscriptions does not exist."""
    return [Route._make(row) for row in ROUTES.all(connection, topic=topic)]


TOPIC_NAMES = Statement("SELECT DISTINCT topic FROM mqlite_subscriptions ORDER BY topic")


def topic_names(connection: Connection) -> list[str]:
    """Return the names of all topics, sorted."""
    return [topic for (topic,) in TOPIC_NAMES.all(connection)]


# Queues, subscriptions and topics share one namespace.
NAME_OWNER = Statement(
    """
    SELECT CASE kind WHEN 'queue' THEN 'a queue' ELSE 'a subscription' END
      FROM mqlite_queues WHERE name = %(name)s
     UNION ALL
    SELECT 'a topic' FROM mqlite_subscriptions WHERE topic = %(name)s
     LIMIT 1
    """,
)

SUBSCRIPTION_TOPIC = Statement(
    "SELECT topic FROM mqlite_subscriptions WHERE subscription = %(subscription)s",
)

# Subscribing again replaces the filter and nothing else; NULL keeps it. `expression` is the filter
# in the language in which a client of the HTTP broker wrote it.
SUBSCRIBE = Statement(
    """
    INSERT INTO mqlite_subscriptions (subscription, topic, filter, expression, created_at)
    VALUES (%(subscription)s, %(topic)s, coalesce(%(filter)s, ''), %(expression)s, %(now)s)
    ON CONFLICT (subscription) DO UPDATE
       SET filter = coalesce(%(filter)s, filter),
           expression = CASE WHEN %(filter)s IS NULL THEN expression ELSE %(expression)s END
    """,
)

# New messages are no longer copied; the queue remains.
UNSUBSCRIBE = Statement("DELETE FROM mqlite_subscriptions WHERE subscription = %(subscription)s")
