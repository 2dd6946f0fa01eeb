"""Why a message has not run: what is known of it and of its nearest surroundings.

Each statement finds its rows by id or through one index, however many messages there are.
"""

from typing import NamedTuple

from .base import Connection, Statement


class Situation(NamedTuple):
    """A message and what its queue says about it; `bound` is the delivery count that is the last.

    The error is that of its last failed delivery; `has_failed` is also true of a redriven message.
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
    bound: int
    finished_at: int
    dead_letter_reason: str | None
    dead_letter_description: str | None
    has_failed: int
    error_class: str | None
    error_message: str | None
    paused: int
    dead_letter_on_expire: int
    kept_until: int


SITUATION = Statement(
    """
    SELECT m.id, m.queue, m.state, m.priority, m.line, m.blocked, m.group_id, m.visible_at,
           m.enqueued_at, m.expires_at, m.locked_until, m.locked_by, m.delivery_count,
           coalesce(nullif(m.max_delivery_count, 0), q.max_delivery_count),
           m.finished_at, m.dead_letter_reason, m.dead_letter_description,
           m.errors IS NOT NULL,
           json_extract(m.errors, '$[#-1].class'), json_extract(m.errors, '$[#-1].message'),
           q.paused, q.dead_letter_on_expire, m.kept_until
      FROM mqlite_messages AS m
     CROSS JOIN mqlite_queues AS q ON q.name = m.queue
     WHERE m.id = %(id)s
    """,
)


def situation(connection: Connection, id: int) -> Situation | None:
    """The message's situation; None if there is no such message."""
    row = SITUATION.one(connection, id=id)
    return Situation._make(row) if row else None


# Served by mqlite_messages_head (queue, line), which has one entry a line.
HEAD_OF_LINE = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND line = %(line)s AND blocked = 0
       AND line IS NOT NULL AND state IN ('active', 'locked', 'deferred', 'scheduled')
    """,
)


def head_of_line(connection: Connection, queue: str, line: str) -> int | None:
    """The id of the message that the others of the line wait for."""
    row = HEAD_OF_LINE.one(connection, queue=queue, line=line)
    return row[0] if row else None


COUNT_AHEAD_TO = 1_000
"""A place further back is not worth walking there."""

# Served by mqlite_messages_active (queue, blocked, priority DESC, id): of its order one range for
# each of its last two columns, both bounded.
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


def ahead(connection: Connection, message: Situation) -> int:
    """How many messages a claim would take before this one, counted up to COUNT_AHEAD_TO."""
    row = AHEAD.one(
        connection,
        queue=message.queue,
        priority=message.priority,
        id=message.id,
        limit=COUNT_AHEAD_TO,
    )
    return min(row[0], COUNT_AHEAD_TO) if row else 0


# One row for each table with AUTOINCREMENT, so it is read from end to end.
NEWEST_ID = Statement("SELECT seq FROM sqlite_sequence WHERE name = 'mqlite_messages'")


def newest_id(connection: Connection) -> int:
    """The id of the message that was stored last, whether or not it is still there; 0 for none."""
    row = NEWEST_ID.one(connection)
    return row[0] if row else 0


# Served by the primary key (message, lock_token): one entry a delivery of the last 30 minutes.
LAST_SETTLEMENT = Statement(
    """
    SELECT queue, verb, expires_at FROM mqlite_settlement_receipts
     WHERE message = %(id)s
     ORDER BY expires_at DESC
     LIMIT 1
    """,
)


class LastSettlement(NamedTuple):
    """The receipt of how a delivery ended."""

    queue: str
    verb: str
    expires_at: int


def last_settlement(connection: Connection, id: int) -> LastSettlement | None:
    """How the last delivery of the message ended, where its receipt is still there."""
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
    """When the messages before and after this id were enqueued, of those that are still there."""
    row = NEIGHBOURS.one(connection, id=id)
    return (row[0], row[1]) if row else (None, None)
