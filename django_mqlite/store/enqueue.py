"""A message enters a queue."""

from ..exceptions import GroupRequired, PriorityRefused, QueueNotFound
from ..types import NewMessage
from .queues import queue_names
from .statement import Connection, Statement, fetch_one

# One statement where nothing needs a look first: the queue's row is found, asked for its rules and
# its ceiling on the time to live, and the message stored. No row back means a rule said no.
#
# `blocked` starts at 1 in a line; the trigger mqlite_line_join lets the head pass.
ENQUEUE = Statement(
    "enqueue",
    """
    INSERT INTO mqlite_messages (
        queue, state, priority, line, blocked, visible_at, enqueued_at, expires_at,
        max_delivery_count, message_id, correlation_id, reply_to, group_id, subject,
        content_type, properties, body)
    SELECT name,
           CASE WHEN %(visible_at)s > %(now)s THEN 'scheduled' ELSE 'active' END,
           %(priority)s,
           CASE ordering_mode WHEN 'strict_fifo' THEN '' ELSE %(group_id)s END,
           ordering_mode = 'strict_fifo' OR %(group_id)s IS NOT NULL,
           %(visible_at)s, %(now)s,
           CASE WHEN %(ttl)s = 0 AND default_ttl_ms = 0 THEN 0
                WHEN %(ttl)s = 0 THEN %(visible_at)s + default_ttl_ms
                WHEN default_ttl_ms = 0 THEN %(visible_at)s + %(ttl)s
                ELSE %(visible_at)s + min(%(ttl)s, default_ttl_ms) END,
           %(max_delivery_count)s, %(message_id)s, %(correlation_id)s, %(reply_to)s, %(group_id)s,
           %(subject)s, %(content_type)s, %(properties)s, %(body)s
      FROM mqlite_queues
     WHERE name = %(queue)s
       AND (ordering_mode <> 'group_fifo' OR %(group_id)s IS NOT NULL)
       AND (ordering_mode <> 'strict_fifo' OR %(priority)s = 0)
    RETURNING id, state, line, expires_at
    """,
)


def enqueue(
    connection: Connection, message: NewMessage, *, now: int
) -> tuple[int, str, str | None, int]:
    """Store the message; its id, state, line and expiry.

    Raises QueueNotFound, GroupRequired or PriorityRefused, each before anything is written.
    """
    row = fetch_one(
        connection,
        ENQUEUE,
        now=now,
        queue=message.queue,
        visible_at=message.visible_at or now + message.delay_ms,
        ttl=message.ttl_ms,
        priority=message.priority,
        max_delivery_count=message.max_delivery_count,
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        group_id=message.group_id,
        subject=message.subject,
        content_type=message.content_type,
        properties=message.properties,
        body=message.body,
    )
    if row is None:
        raise refusal(connection, message)
    return row


QUEUE_RULES = Statement(
    "queue_rules", "SELECT ordering_mode FROM mqlite_queues WHERE name = %(queue)s"
)


def refusal(connection: Connection, message: NewMessage) -> Exception:
    """Why the queue did not take the message."""
    row = fetch_one(connection, QUEUE_RULES, queue=message.queue)
    if row is None:
        return QueueNotFound(message.queue, queue_names(connection))
    if row[0] == "group_fifo" and message.group_id is None:
        return GroupRequired(message.queue)
    return PriorityRefused(message.queue)
