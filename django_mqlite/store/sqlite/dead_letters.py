"""Dead letters go back to work."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from .base import Connection, Statement


class Due(NamedTuple):
    """A dead letter and how many milliseconds from now it may be delivered again."""

    id: int
    delay_ms: int


# In place: the message keeps its id and with it its age and its place in its line, where
# mqlite_line_return lets it in. `errors` stays, so that the history is still to be read, and is not
# NULL: that tells a redriven message from a new one, which can be cancelled. The time to live does
# not come back, because who redrives wants the message handled.
REDRIVE = Statement(
    """
    UPDATE mqlite_messages
       SET state = CASE WHEN due.delay > 0 THEN 'scheduled' ELSE 'active' END,
           blocked = line IS NOT NULL,
           delivery_count = 0, interruptions = 0, visible_at = %(now)s + due.delay,
           expires_at = 0, finished_at = 0,
           errors = coalesce(errors, '[]'),
           dead_letter_reason = NULL, dead_letter_description = NULL
      FROM (SELECT m.id AS dead, json_extract(wanted.value, '$[1]') AS delay
              FROM json_each(%(dues)s) AS wanted
             CROSS JOIN mqlite_messages AS m NOT INDEXED
                ON m.id = json_extract(wanted.value, '$[0]')
             WHERE m.state = 'dead_lettered') AS due
     WHERE id = due.dead
    """,
)


def redrive(connection: Connection, dues: Sequence[Due], *, now: int) -> int:
    """Make these dead letters active again, deliveries counted from 0; how many there were."""
    return REDRIVE.run(connection, dues=json.dumps(dues), now=now)


# Into another queue: new rows under its rules, at the end of its lines.
COPY_DEAD_LETTERS = Statement(
    """
    INSERT INTO mqlite_messages (
        queue, state, priority, line, blocked, visible_at, enqueued_at, max_delivery_count,
        message_id, correlation_id, reply_to, group_id, subject, content_type, properties, body,
        errors)
    SELECT q.name,
           CASE WHEN json_extract(wanted.value, '$[1]') > 0 THEN 'scheduled' ELSE 'active' END,
           CASE q.ordering_mode WHEN 'strict_fifo' THEN 0 ELSE m.priority END,
           CASE q.ordering_mode WHEN 'strict_fifo' THEN '' ELSE m.group_id END,
           q.ordering_mode = 'strict_fifo' OR m.group_id IS NOT NULL,
           %(now)s + json_extract(wanted.value, '$[1]'), %(now)s, m.max_delivery_count,
           m.message_id, m.correlation_id, m.reply_to, m.group_id, m.subject, m.content_type,
           m.properties, m.body, coalesce(m.errors, '[]')
      FROM json_each(%(dues)s) AS wanted
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = json_extract(wanted.value, '$[0]')
      JOIN mqlite_queues AS q ON q.name = %(queue)s
     WHERE m.state = 'dead_lettered'
     ORDER BY m.id
    """,
)

UNGROUPED_DEAD_LETTER = Statement(
    """
    SELECT m.id
      FROM json_each(%(dues)s) AS wanted
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = json_extract(wanted.value, '$[0]')
      JOIN mqlite_queues AS q ON q.name = %(queue)s
     WHERE m.state = 'dead_lettered' AND m.group_id IS NULL AND q.ordering_mode = 'group_fifo'
     LIMIT 1
    """,
)


def ungrouped_dead_letter(connection: Connection, dues: Sequence[Due], queue: str) -> int | None:
    """One of these that the queue could not take, because it wants a group."""
    row = UNGROUPED_DEAD_LETTER.one(connection, dues=json.dumps(dues), queue=queue)
    return row[0] if row else None


def redrive_into(connection: Connection, dues: Sequence[Due], queue: str, *, now: int) -> int:
    """Move these dead letters to `queue` under new ids; how many there were.

    Deduplication is not asked: a redrive is meant.
    """
    encoded = json.dumps(dues)
    count = COPY_DEAD_LETTERS.run(connection, dues=encoded, queue=queue, now=now)
    purge(connection, [due.id for due in dues])
    return count


PURGE = Statement(
    """
    DELETE FROM mqlite_messages
     WHERE id IN (SELECT m.id
                    FROM json_each(%(ids)s) AS wanted
                   CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = wanted.value
                   WHERE m.state = 'dead_lettered')
    """,
)


def purge(connection: Connection, ids: Sequence[int]) -> int:
    """Delete these dead letters; how many there were."""
    return PURGE.run(connection, ids=json.dumps(list(ids)))


LAST_DEATH = Statement(
    """
    SELECT max(finished_at) FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered'
    """,
)


def last_death(connection: Connection, queue: str) -> int | None:
    """When the newest dead letter died; later than now where the clock has stepped back since."""
    row = LAST_DEATH.one(connection, queue=queue)
    return row[0] if row else None


class Death(NamedTuple):
    """When a dead letter died, and its id: the order in which they are gone through."""

    finished_at: int
    id: int


# Served by mqlite_messages_dead (queue, finished_at, id) WHERE state = 'dead_lettered'.
DEATHS = Statement(
    """
    SELECT finished_at, id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered' AND finished_at <= %(finished_before)s
       AND (finished_at, id) > (%(after_at)s, %(after_id)s)
       AND (%(reason)s IS NULL OR dead_letter_reason = %(reason)s)
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)


def deaths(
    connection: Connection,
    queue: str,
    *,
    finished_before: int,
    after: Death,
    reason: str | None,
    limit: int,
) -> list[Death]:
    """At most `limit` dead letters that died no later than `finished_before`, those after `after`.

    Of this reason, or of any if it is None.
    """
    rows = DEATHS.all(
        connection,
        queue=queue,
        finished_before=finished_before,
        after_at=after.finished_at,
        after_id=after.id,
        reason=reason,
        limit=limit,
    )
    return [Death._make(row) for row in rows]
