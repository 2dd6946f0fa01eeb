"""Store messages under the rules of their queue."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from ...exceptions import GroupRequired, PriorityRefused, QueueNotFound
from ...types import NewMessage
from .base import UNFINISHED, Connection, Statement
from .queues import queue_names


class Stored(NamedTuple):
    """A stored message. `line` is None if the message is not part of a group."""

    id: int
    state: str
    line: str | None
    expires_at: int


INSERT_MESSAGES = """
    INSERT INTO mqlite_messages (
        queue, state, priority, line, blocked, visible_at, enqueued_at, expires_at,
        max_delivery_count, message_id, correlation_id, reply_to, group_id, subject,
        content_type, properties, unique_key, body)"""

# One statement checks the queue's rules and stores the message. It returns no row if a rule rejects
# the message, if the deduplication window must be checked first, or if an unfinished message has
# its unique key.
#
# `blocked` starts at 1 in a line; the trigger mqlite_line_join clears it for the head.
ENQUEUE = Statement(
    INSERT_MESSAGES
    + """
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
           %(subject)s, %(content_type)s, %(properties)s, %(unique_key)s, %(body)s
      FROM mqlite_queues
     WHERE name = %(queue)s
       AND (dedup_window_ms = 0 OR %(deduplicated)s)
       AND (ordering_mode <> 'group_fifo' OR %(group_id)s IS NOT NULL)
       AND (ordering_mode <> 'strict_fifo' OR %(priority)s = 0)
       AND (%(unique_key)s IS NULL OR NOT EXISTS (
               SELECT 1 FROM mqlite_messages
                WHERE queue = %(queue)s AND unique_key = %(unique_key)s AND """
    + UNFINISHED
    + """))
    RETURNING id, state, line, expires_at
    """,
)


def enqueue(
    connection: Connection, message: NewMessage, *, now: int, deduplicated: bool = False
) -> Stored | None:
    """Store the message, or return None if it is rejected (see check_rules()) or a duplicate.

    `deduplicated` is True if the deduplication window has been checked.
    """
    row = ENQUEUE.one(
        connection,
        now=now,
        deduplicated=deduplicated,
        queue=message.queue,
        visible_at=message.visible_from(now),
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
        unique_key=message.unique_key,
        body=message.body,
    )
    return Stored._make(row) if row else None


# Stores a whole batch. The bodies are passed as one BLOB with offsets, because JSON cannot contain
# arbitrary bytes. ORDER BY assigns the ids in the order of the batch. substr() of an empty BLOB is
# NULL.
ENQUEUE_MANY = Statement(
    INSERT_MESSAGES
    + """
    SELECT name,
           CASE WHEN visible_at > %(now)s THEN 'scheduled' ELSE 'active' END,
           priority,
           CASE ordering_mode WHEN 'strict_fifo' THEN '' ELSE group_id END,
           ordering_mode = 'strict_fifo' OR group_id IS NOT NULL,
           visible_at, %(now)s,
           CASE WHEN ttl = 0 AND default_ttl_ms = 0 THEN 0
                WHEN ttl = 0 THEN visible_at + default_ttl_ms
                WHEN default_ttl_ms = 0 THEN visible_at + ttl
                ELSE visible_at + min(ttl, default_ttl_ms) END,
           message_max_delivery_count, message_id, correlation_id, reply_to, group_id, subject,
           content_type, properties, unique_key,
           coalesce(substr(%(bodies)s, body_start, body_length), x'')
      FROM (SELECT key AS place,
                   json_extract(value, '$[0]') AS visible_at,
                   json_extract(value, '$[1]') AS ttl,
                   json_extract(value, '$[2]') AS priority,
                   json_extract(value, '$[3]') AS message_max_delivery_count,
                   json_extract(value, '$[4]') AS message_id,
                   json_extract(value, '$[5]') AS correlation_id,
                   json_extract(value, '$[6]') AS reply_to,
                   json_extract(value, '$[7]') AS group_id,
                   json_extract(value, '$[8]') AS subject,
                   json_extract(value, '$[9]') AS content_type,
                   json_extract(value, '$[10]') AS properties,
                   json_extract(value, '$[11]') AS unique_key,
                   json_extract(value, '$[12]') AS body_start,
                   json_extract(value, '$[13]') AS body_length
              FROM json_each(%(drafts)s))
     CROSS JOIN mqlite_queues
     WHERE name = %(queue)s
       AND dedup_window_ms = 0
       AND (ordering_mode <> 'group_fifo' OR group_id IS NOT NULL)
       AND (ordering_mode <> 'strict_fifo' OR priority = 0)
     ORDER BY place
    RETURNING id, state, line, expires_at
    """,
)


def enqueue_many(
    connection: Connection, messages: Sequence[NewMessage], *, now: int
) -> list[Stored]:
    """Store messages of one queue; ids follow the given order.

    Call check_rules() first, and do not pass messages whose unique key is in use.
    """
    drafts, start = [], 1
    for message in messages:
        drafts.append(_encoded(message, start, now))
        start += len(message.body)
    rows = ENQUEUE_MANY.all(
        connection,
        queue=messages[0].queue,
        now=now,
        drafts=json.dumps(drafts),
        bodies=b"".join(message.body for message in messages),
    )
    return sorted(map(Stored._make, rows))


def _encoded(message: NewMessage, start: int, now: int) -> tuple[object, ...]:
    return (
        message.visible_from(now),
        message.ttl_ms,
        message.priority,
        message.max_delivery_count,
        message.message_id,
        message.correlation_id,
        message.reply_to,
        message.group_id,
        message.subject,
        message.content_type,
        message.properties,
        message.unique_key,
        start,
        len(message.body),
    )


QUEUE_RULES = Statement(
    "SELECT ordering_mode, dedup_window_ms FROM mqlite_queues WHERE name = %(queue)s",
)


def check_rules(connection: Connection, queue: str, messages: Sequence[NewMessage]) -> bool:
    """Return whether the queue has a deduplication window, which must be checked first.

    Raises QueueNotFound, GroupRequired or PriorityRefused if the queue's rules reject a message.
    """
    row = QUEUE_RULES.one(connection, queue=queue)
    if row is None:
        raise QueueNotFound(queue, queue_names(connection))
    ordering_mode, dedup_window_ms = row
    if ordering_mode == "group_fifo" and any(m.group_id is None for m in messages):
        raise GroupRequired(queue)
    if ordering_mode == "strict_fifo" and any(m.priority for m in messages):
        raise PriorityRefused(queue)
    return bool(dedup_window_ms)
