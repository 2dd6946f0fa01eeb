"""Messages are looked at and left alone."""

from .rows import MessageRow
from .statement import Connection, Statement, fetch_all

# Served by mqlite_messages_active: first the heads in claim order, then those behind them.
PEEK = Statement(
    "peek",
    """
    SELECT id, queue, state, priority, line, blocked, visible_at, enqueued_at, expires_at,
           locked_at, locked_until, lock_token, locked_by, delivery_count, max_delivery_count,
           message_id, correlation_id, reply_to, group_id, subject, content_type, properties,
           body, errors, result, finished_at, dead_letter_reason, dead_letter_description
      FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'active'
     ORDER BY blocked, priority DESC, id
     LIMIT %(limit)s
    """,
)


def peek(connection: Connection, queue: str, *, limit: int) -> list[MessageRow]:
    """The next messages in claim order, without a lease and without counting a delivery."""
    return [MessageRow._make(row) for row in fetch_all(connection, PEEK, queue=queue, limit=limit)]


PEEK_DEAD_LETTERS = Statement(
    "peek_dead_letters",
    """
    SELECT id, queue, state, priority, line, blocked, visible_at, enqueued_at, expires_at,
           locked_at, locked_until, lock_token, locked_by, delivery_count, max_delivery_count,
           message_id, correlation_id, reply_to, group_id, subject, content_type, properties,
           body, errors, result, finished_at, dead_letter_reason, dead_letter_description
      FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered'
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)


def peek_dead_letters(connection: Connection, queue: str, *, limit: int) -> list[MessageRow]:
    """The oldest dead letters of the queue."""
    rows = fetch_all(connection, PEEK_DEAD_LETTERS, queue=queue, limit=limit)
    return [MessageRow._make(row) for row in rows]


# By the primary key: what has come since.
ARRIVALS = Statement(
    "arrivals",
    """
    SELECT id, queue, state, priority, line, blocked, visible_at, enqueued_at, expires_at,
           locked_at, locked_until, lock_token, locked_by, delivery_count, max_delivery_count,
           message_id, correlation_id, reply_to, group_id, subject, content_type, properties,
           body, errors, result, finished_at, dead_letter_reason, dead_letter_description
      FROM mqlite_messages
     WHERE id > %(after)s AND (%(queue)s IS NULL OR queue = %(queue)s)
     ORDER BY id
     LIMIT %(limit)s
    """,
)


def arrivals(
    connection: Connection, queue: str | None, *, after: int, limit: int
) -> list[MessageRow]:
    """The first messages of the queue, or of any, that were stored after the one with that id."""
    rows = fetch_all(connection, ARRIVALS, queue=queue, after=after, limit=limit)
    return [MessageRow._make(row) for row in rows]
