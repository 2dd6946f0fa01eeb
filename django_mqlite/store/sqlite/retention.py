"""Find and delete messages and records whose retention period has ended."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from .base import Connection, Statement

# Served by mqlite_messages_kept (kept_until) WHERE state = 'completed'.
COMPLETED_TO_PRUNE = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE state = 'completed' AND kept_until <= %(now)s
     LIMIT %(limit)s
    """,
)


def completed_to_prune(connection: Connection, *, now: int, limit: int) -> list[int]:
    """Return the ids of at most `limit` completed messages whose retention period has ended."""
    return [id for (id,) in COMPLETED_TO_PRUNE.all(connection, now=now, limit=limit)]


PRUNE_COMPLETED = Statement(
    """
    DELETE FROM mqlite_messages NOT INDEXED
     WHERE id IN (SELECT value FROM json_each(%(ids)s)) AND state = 'completed'
    """,
)


def prune_completed(connection: Connection, ids: Sequence[int]) -> int:
    """Delete these completed messages; return their number."""
    return PRUNE_COMPLETED.run(connection, ids=json.dumps(list(ids)))


# Restarts the retention period of a finished message that could not be deleted.
KEEP_LONGER = Statement(
    """
    UPDATE mqlite_messages
       SET finished_at = %(now)s, kept_until = %(now)s + max(0, kept_until - finished_at)
     WHERE id = %(id)s AND state IN ('completed', 'dead_lettered')
    """,
)


class Bounds(NamedTuple):
    """The limits of a queue for its dead letters: 0 means the setting's, -1 means no limit."""

    queue: str
    max_age_ms: int
    max_count: int
    max_bytes: int


DEAD_LETTER_BOUNDS = Statement(
    """
    SELECT name, dlq_max_age_ms, dlq_max_count, dlq_max_bytes
      FROM mqlite_queues
     WHERE EXISTS (SELECT 1 FROM mqlite_messages
                    WHERE queue = name AND state = 'dead_lettered')
    """,
)


def dead_letter_bounds(connection: Connection) -> list[Bounds]:
    """Return the limits of each queue that has dead letters."""
    return [Bounds._make(row) for row in DEAD_LETTER_BOUNDS.all(connection)]


# The next three are served by mqlite_messages_dead (queue, finished_at) and find the oldest first.
TOO_OLD = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered' AND finished_at <= %(now)s - %(max_age)s
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)

TOO_MANY = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered'
     ORDER BY finished_at, id
     LIMIT min(%(limit)s, max(0, (SELECT count(*) FROM mqlite_messages
                                   WHERE queue = %(queue)s AND state = 'dead_lettered')
                                 - %(max_count)s))
    """,
)

# The newest dead letters are kept while the sum of their bodies is within the limit.
TOO_LARGE = Statement(
    """
    SELECT id
      FROM (SELECT id, finished_at,
                   sum(length(body)) OVER (ORDER BY finished_at DESC, id DESC) AS kept
              FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'dead_lettered')
     WHERE kept > %(max_bytes)s
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)


def dead_letters_exceeding(
    connection: Connection, bounds: Bounds, *, now: int, limit: int
) -> list[int]:
    """Return the ids of at most `limit` dead letters beyond the bounds; 0 or less is no bound.

    Those beyond the maximum age come first, then those beyond the count and the bytes.
    """
    queue, max_age, max_count, max_bytes = bounds
    rows: list[tuple[int]] = []
    if max_age > 0:
        rows += TOO_OLD.all(connection, queue=queue, max_age=max_age, now=now, limit=limit)
    if max_count > 0:
        rows += TOO_MANY.all(connection, queue=queue, max_count=max_count, limit=limit)
    if max_bytes > 0:
        rows += TOO_LARGE.all(connection, queue=queue, max_bytes=max_bytes, limit=limit)
    return list(dict.fromkeys(id for (id,) in rows))[:limit]


# Served by the indexes on expires_at of the three tables. A read, so that a sweep that has nothing
# to delete does not take the write lock.
RECORDS_TO_PRUNE = Statement(
    """
    SELECT EXISTS (SELECT 1 FROM mqlite_settlement_receipts WHERE expires_at <= %(now)s)
        OR EXISTS (SELECT 1 FROM mqlite_receive_attempts WHERE expires_at <= %(now)s)
        OR EXISTS (SELECT 1 FROM mqlite_dedup WHERE expires_at <= %(now)s)
    """,
)
