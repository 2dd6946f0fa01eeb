"""Read the facts that explain why a message has not run: its status, its line, its neighbours.

Each statement finds its rows by id or through one index, so its cost does not grow with the queue.
"""

from typing import NamedTuple

from .base import ERRORS, Connection, Statement


class MessageStatus(NamedTuple):
    """The columns of a message and of its queue that decide when the message runs.

    `max_delivery_count` is the message's own limit or the queue's. The error is that of the last
    failed delivery; `has_failed` is also true for a redriven message.
    """

    id: int
    queue: str
    state: str
    priority: int
    line: str | None
    blocked: int
    group_id: str | None
    visible_at: int
    enqueued_at: int
    expires_at: int
    locked_until: int
    locked_by: str | None
    delivery_count: int
    max_delivery_count: int
    finished_at: int
    dead_letter_reason: str | None
    dead_letter_description: str | None
    has_failed: int
    error_class: str | None
    error_message: str | None
    paused: int
    dead_letter_on_expire: int
    kept_until: int
    uncounted_retries: int


MESSAGE_STATUS = Statement(
    """
    SELECT m.id, m.queue, m.state, m.priority, m.line, m.blocked, m.group_id, m.visible_at,
           m.enqueued_at, m.expires_at, m.locked_until, m.locked_by, m.delivery_count,
           coalesce(nullif(m.max_delivery_count, 0), q.max_delivery_count),
           m.finished_at, m.dead_letter_reason, m.dead_letter_description,
           m.errors IS NOT NULL, m.error_class,
           CAST(json_extract("""
    + ERRORS
    + """, '$[#-1].message') AS TEXT),
           q.paused, q.dead_letter_on_expire, m.kept_until, m.uncounted_retries
      FROM mqlite_messages AS m
     CROSS JOIN mqlite_queues AS q ON q.name = m.queue
     WHERE m.id = %(id)s
    """,
)


def message_status(connection: Connection, id: int) -> MessageStatus | None:
    """Return the status of the message, or None if it does not exist."""
    row = MESSAGE_STATUS.one(connection, id=id)
    return MessageStatus._make(row) if row else None


# The message that the others of its line wait for. Served by mqlite_messages_head (queue, line),
# which has one entry per line.
HEAD_OF_LINE = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND line = %(line)s AND blocked = 0
       AND line IS NOT NULL AND state IN ('active', 'locked', 'deferred', 'scheduled')
    """,
)


COUNT_AHEAD_TO = 1_000
"""Messages ahead are counted up to this number, so that the cost is bounded."""

# Served by mqlite_messages_active (queue, blocked, priority DESC, id): one bounded range for the
# higher priorities and one for the lower ids of the same priority.
AHEAD = Statement(
    """
    SELECT (SELECT count(*)
              FROM (SELECT 1 FROM mqlite_messages
                     WHERE queue = %(queue)s AND state = 'active' AND blocked = 0
                       AND priority > %(priority)s
                     LIMIT %(limit)s))
         + (SELECT count(*)
              FROM (SELECT 1 FROM mqlite_messages
                     WHERE queue = %(queue)s AND state = 'active' AND blocked = 0
                       AND priority = %(priority)s AND id < %(id)s
                     LIMIT %(limit)s))
    """,
)


def count_ahead(connection: Connection, message: MessageStatus) -> int:
    """Return the number of messages claimed before this one, at most COUNT_AHEAD_TO."""
    row = AHEAD.one(
        connection,
        queue=message.queue,
        priority=message.priority,
        id=message.id,
        limit=COUNT_AHEAD_TO,
    )
    return min(row[0], COUNT_AHEAD_TO) if row else 0


# sqlite_sequence has one row per table with AUTOINCREMENT, so a scan of it is cheap.
NEWEST_ID = Statement("SELECT seq FROM sqlite_sequence WHERE name = 'mqlite_messages'")


def newest_id(connection: Connection) -> int:
    """Return the id of the message that was stored last, even if it is deleted; 0 for none."""
    return NEWEST_ID.value(connection) or 0


# Served by the primary key (message, lock_token): one entry per delivery of the last 30 minutes.
LAST_SETTLEMENT = Statement(
    """
    SELECT queue, verb, expires_at FROM mqlite_settlement_receipts
     WHERE message = %(id)s
     ORDER BY expires_at DESC
     LIMIT 1
    """,
)


class LastSettlement(NamedTuple):
    """The receipt of a settled delivery."""

    queue: str
    verb: str
    expires_at: int


def last_settlement(connection: Connection, id: int) -> LastSettlement | None:
    """Return the receipt of the message's last delivery, or None if it has been pruned."""
    row = LAST_SETTLEMENT.one(connection, id=id)
    return LastSettlement._make(row) if row else None


NEIGHBOURS = Statement(
    """
    SELECT (SELECT enqueued_at FROM mqlite_messages
             WHERE id < %(id)s ORDER BY id DESC LIMIT 1),
           (SELECT enqueued_at FROM mqlite_messages
             WHERE id > %(id)s ORDER BY id LIMIT 1)
    """,
)


def neighbours(connection: Connection, id: int) -> tuple[int | None, int | None]:
    """Return the enqueue times of the nearest messages before and after this id, or None."""
    row = NEIGHBOURS.one(connection, id=id)
    return (row[0], row[1]) if row else (None, None)
