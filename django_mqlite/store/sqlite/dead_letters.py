"""Redrive and purge dead letters."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from .base import ERRORS, UNFINISHED, Connection, Statement


class Redelivery(NamedTuple):
    """A dead letter to redrive, and the delay in milliseconds until it can be delivered."""

    id: int
    delay_ms: int


# The message is changed in place: it keeps its id, its age and its place in its line, which the
# trigger mqlite_line_return restores. `errors` is kept as the history, or set to '[]' if there is
# none, because a redriven message cannot be cancelled. The TTL is removed, because a redriven
# message is meant to be handled.
#
# A dead letter is skipped if an unfinished message has its unique key. Of several dead letters with
# the same key, only the first is redriven.
REDRIVE = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET state = CASE WHEN redelivery.delay > 0 THEN 'scheduled' ELSE 'active' END,
           blocked = line IS NOT NULL,
           delivery_count = 0, interruptions = 0, uncounted_retries = 0, progress = NULL,
           visible_at = %(now)s + redelivery.delay,
           expires_at = 0, finished_at = 0,
           errors = """
    + ERRORS
    + """,
           dead_letter_reason = NULL, dead_letter_description = NULL
      FROM (SELECT m.id AS dead, json_extract(requested.value, '$[1]') AS delay,
                   row_number() OVER (PARTITION BY m.queue, coalesce(m.unique_key, m.id)
                                      ORDER BY m.id) AS key_rank
              FROM json_each(%(redeliveries)s) AS requested
             CROSS JOIN mqlite_messages AS m NOT INDEXED
                ON m.id = json_extract(requested.value, '$[0]')
             WHERE m.state = 'dead_lettered') AS redelivery
     WHERE id = redelivery.dead AND state = 'dead_lettered' AND redelivery.key_rank = 1
       AND NOT EXISTS (SELECT 1 FROM mqlite_messages AS holder
                        WHERE holder.queue = mqlite_messages.queue
                          AND holder.unique_key = mqlite_messages.unique_key
                          AND holder."""
    + UNFINISHED
    + """)
    """,
)


def redrive(connection: Connection, redeliveries: Sequence[Redelivery], *, now: int) -> int:
    """Make these dead letters active again, with a delivery count of 0; return their number."""
    return REDRIVE.run(connection, redeliveries=json.dumps(redeliveries), now=now)


# Returns the dead letters that REDRIVE skipped because of their unique key.
SKIPPED_DUPLICATES = Statement(
    """
    SELECT m.id
      FROM json_each(%(ids)s) AS requested
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = requested.value
     WHERE m.state = 'dead_lettered' AND m.unique_key IS NOT NULL
     ORDER BY m.id
    """,
)


def skipped_duplicates(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Return the ids of the dead letters that redrive() skipped because of their unique key."""
    return [id for (id,) in SKIPPED_DUPLICATES.all(connection, ids=json.dumps(list(ids)))]


# Returns the dead letters that cannot be redriven into a queue, because an unfinished message there
# or an earlier one of these dead letters has the same unique key.
DUPLICATES_IN_QUEUE = Statement(
    """
    SELECT id
      FROM (SELECT m.id, m.unique_key,
                   row_number() OVER (PARTITION BY m.unique_key ORDER BY m.id) AS key_rank
              FROM json_each(%(ids)s) AS requested
             CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = requested.value
             WHERE m.state = 'dead_lettered' AND m.unique_key IS NOT NULL) AS dead
     WHERE key_rank > 1
        OR EXISTS (SELECT 1 FROM mqlite_messages AS holder
                    WHERE holder.queue = %(queue)s AND holder.unique_key = dead.unique_key
                      AND holder."""
    + UNFINISHED
    + """)
     ORDER BY id
    """,
)


def duplicates_in_queue(connection: Connection, ids: Sequence[int], queue: str) -> list[int]:
    """Return the ids of the dead letters that would be duplicates in `queue`."""
    rows = DUPLICATES_IN_QUEUE.all(connection, ids=json.dumps(list(ids)), queue=queue)
    return [id for (id,) in rows]


# The copies are new messages: the queue's rules apply, and they go to the end of its lines.
COPY_DEAD_LETTERS = Statement(
    """
    INSERT INTO mqlite_messages (
        queue, state, priority, line, blocked, visible_at, enqueued_at, max_delivery_count,
        message_id, correlation_id, reply_to, group_id, subject, content_type, properties, body,
        unique_key, errors)
    SELECT q.name,
           CASE WHEN json_extract(requested.value, '$[1]') > 0 THEN 'scheduled' ELSE 'active' END,
           CASE q.ordering_mode WHEN 'strict_fifo' THEN 0 ELSE m.priority END,
           CASE q.ordering_mode WHEN 'strict_fifo' THEN '' ELSE m.group_id END,
           q.ordering_mode = 'strict_fifo' OR m.group_id IS NOT NULL,
           %(now)s + json_extract(requested.value, '$[1]'), %(now)s, max(m.max_delivery_count, 0),
           m.message_id, m.correlation_id, m.reply_to, m.group_id, m.subject, m.content_type,
           CASE WHEN m.properties IS NULL OR json_valid(m.properties) THEN m.properties
                ELSE json_quote(m.properties) END, m.body, m.unique_key, """
    + ERRORS
    + """
      FROM json_each(%(redeliveries)s) AS requested
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = json_extract(requested.value, '$[0]')
      JOIN mqlite_queues AS q ON q.name = %(queue)s
     WHERE m.state = 'dead_lettered'
     ORDER BY m.id
    """,
)

# The copy with another body is a new message at the end of its line. It is not stored if an
# unfinished message has its unique key.
COPY_EDITED = Statement(
    """
    INSERT INTO mqlite_messages (
        queue, state, priority, line, blocked, visible_at, enqueued_at, max_delivery_count,
        message_id, correlation_id, reply_to, group_id, subject, content_type, properties, body,
        unique_key, errors)
    SELECT q.name, 'active',
           CASE q.ordering_mode WHEN 'strict_fifo' THEN 0 ELSE m.priority END,
           CASE q.ordering_mode WHEN 'strict_fifo' THEN '' ELSE m.group_id END,
           q.ordering_mode = 'strict_fifo' OR m.group_id IS NOT NULL,
           %(now)s, %(now)s, max(m.max_delivery_count, 0),
           m.message_id, m.correlation_id, m.reply_to, m.group_id, m.subject, %(content_type)s,
           CASE WHEN json_valid(m.properties) AND json_type(m.properties) = 'object'
                THEN json_set(m.properties, '$.redriven_from', CAST(m.id AS TEXT))
                ELSE json_object('redriven_from', CAST(m.id AS TEXT)) END,
           %(body)s, m.unique_key, """
    + ERRORS
    + """
      FROM mqlite_messages AS m NOT INDEXED
     CROSS JOIN mqlite_queues AS q ON q.name = m.queue
     WHERE m.id = %(id)s AND m.state = 'dead_lettered'
       AND NOT EXISTS (SELECT 1 FROM mqlite_messages AS holder
                        WHERE holder.queue = m.queue AND holder.unique_key = m.unique_key
                          AND holder."""
    + UNFINISHED
    + """)
    RETURNING id
    """,
)

# A group_fifo queue does not accept messages without a group.
UNGROUPED_DEAD_LETTER = Statement(
    """
    SELECT m.id
      FROM json_each(%(ids)s) AS requested
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = requested.value
      JOIN mqlite_queues AS q ON q.name = %(queue)s
     WHERE m.state = 'dead_lettered' AND m.group_id IS NULL AND q.ordering_mode = 'group_fifo'
     LIMIT 1
    """,
)


def ungrouped_dead_letter(connection: Connection, ids: Sequence[int], queue: str) -> int | None:
    """Return the id of a dead letter that has no group although `queue` requires one, or None."""
    id: int | None = UNGROUPED_DEAD_LETTER.value(connection, ids=json.dumps(ids), queue=queue)
    return id


def redrive_into(
    connection: Connection, redeliveries: Sequence[Redelivery], queue: str, *, now: int
) -> int:
    """Move these dead letters to `queue` under new ids; return their number.

    The deduplication window does not apply, because a redrive is deliberate. Do not pass dead
    letters that duplicates_in_queue() returns.
    """
    count = COPY_DEAD_LETTERS.run(
        connection, redeliveries=json.dumps(redeliveries), queue=queue, now=now
    )
    purge(connection, [redelivery.id for redelivery in redeliveries])
    return count


PURGE = Statement(
    """
    DELETE FROM mqlite_messages NOT INDEXED
     WHERE id IN (SELECT value FROM json_each(%(ids)s)) AND state = 'dead_lettered'
    """,
)


def purge(connection: Connection, ids: Sequence[int]) -> int:
    """Delete these dead letters; return their number."""
    return PURGE.run(connection, ids=json.dumps(list(ids)))


# Can be later than now if the clock has been set back.
NEWEST_FINISHED_AT = Statement(
    """
    SELECT max(finished_at) FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered'
    """,
)

# Served by mqlite_messages_dead (queue, finished_at, id) WHERE state = 'dead_lettered'.
NEXT_BATCH = Statement(
    """
    SELECT finished_at, id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered' AND finished_at <= %(finished_before)s
       AND (finished_at, id) > (%(after_finished_at)s, %(after_id)s)
       AND (%(reason)s IS NULL OR dead_letter_reason = %(reason)s)
       AND (%(error_class)s IS NULL OR error_class = %(error_class)s)
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)

CLASSES = "SELECT error_class, dead_letter_reason FROM mqlite_messages"

COUNTS = "SELECT error_class, CASE WHEN error_class IS NULL THEN dead_letter_reason END, count(*)"

# Served by mqlite_messages_died and mqlite_messages_dead, which cover all columns that are read.
# The condition on `finished_at` is always true; with it, SQLite searches the index.
COUNT_BY_ERROR = Statement(
    COUNTS
    + """
      FROM ("""
    + CLASSES
    + """
             WHERE finished_at >= 0 AND state = 'dead_lettered'
             ORDER BY finished_at DESC, id DESC
             LIMIT %(newest)s)
     GROUP BY 1, 2
     ORDER BY 3 DESC, 1, 2
     LIMIT %(limit)s
    """,
)

COUNT_BY_ERROR_IN_QUEUE = Statement(
    COUNTS
    + """
      FROM ("""
    + CLASSES
    + """
             WHERE queue = %(queue)s AND state = 'dead_lettered'
             ORDER BY finished_at DESC, id DESC
             LIMIT %(newest)s)
     GROUP BY 1, 2
     ORDER BY 3 DESC, 1, 2
     LIMIT %(limit)s
    """,
)
