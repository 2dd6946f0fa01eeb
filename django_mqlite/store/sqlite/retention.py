"""What is kept for a while goes when the while is over."""

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
    """The ids of at most `limit` completed messages that have been kept long enough."""
    return [id for (id,) in COMPLETED_TO_PRUNE.all(connection, now=now, limit=limit)]


PRUNE_COMPLETED = Statement(
    """
    DELETE FROM mqlite_messages
     WHERE id IN (SELECT m.id
                    FROM json_each(%(ids)s) AS wanted
                   CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = wanted.value
                   WHERE m.state = 'completed')
    """,
)


def prune_completed(connection: Connection, ids: Sequence[int]) -> int:
    """Delete these completed messages; how many there were."""
    return PRUNE_COMPLETED.run(connection, ids=json.dumps(list(ids)))


KEEP_LONGER = Statement(
    """
    UPDATE mqlite_messages
       SET finished_at = %(now)s, kept_until = %(now)s + max(0, kept_until - finished_at)
     WHERE id = %(id)s AND state IN ('completed', 'dead_lettered')
    """,
)


def keep_longer(connection: Connection, id: int, *, now: int) -> None:
    """Count the time that this finished message is kept afresh: it could not be deleted."""
    KEEP_LONGER.run(connection, id=id, now=now)


class Bounds(NamedTuple):
    """What a queue says about its dead letters: 0 inherits, -1 is no bound."""

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
    """The bounds of each queue that has dead letters."""
    return [Bounds._make(row) for row in DEAD_LETTER_BOUNDS.all(connection)]


# The three below are served by mqlite_messages_dead (queue, finished_at), oldest death first.
TOO_OLD = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered' AND finished_at <= %(now)s - %(max_age)s
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)


def too_old(connection: Connection, queue: str, *, max_age: int, now: int, limit: int) -> list[int]:
    """The ids of at most `limit` dead letters older than `max_age` ms."""
    rows = TOO_OLD.all(connection, queue=queue, max_age=max_age, now=now, limit=limit)
    return [id for (id,) in rows]


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


def too_many(connection: Connection, queue: str, *, max_count: int, limit: int) -> list[int]:
    """The ids of the oldest dead letters, at most `limit`, that are over `max_count`."""
    rows = TOO_MANY.all(connection, queue=queue, max_count=max_count, limit=limit)
    return [id for (id,) in rows]


# The newest are kept as long as the sum of their bodies fits.
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


def too_large(connection: Connection, queue: str, *, max_bytes: int, limit: int) -> list[int]:
    """The ids of the oldest dead letters, at most `limit`, beyond `max_bytes` of bodies."""
    rows = TOO_LARGE.all(connection, queue=queue, max_bytes=max_bytes, limit=limit)
    return [id for (id,) in rows]


# Served by the indexes on expires_at of the three tables.
RECORDS_TO_FORGET = Statement(
    """
    SELECT EXISTS (SELECT 1 FROM mqlite_settlement_receipts WHERE expires_at <= %(now)s)
        OR EXISTS (SELECT 1 FROM mqlite_receive_attempts WHERE expires_at <= %(now)s)
        OR EXISTS (SELECT 1 FROM mqlite_dedup WHERE expires_at <= %(now)s)
    """,
)


def records_to_forget(connection: Connection, *, now: int) -> bool:
    """Whether a receipt, an attempt or a deduplication key is over. A read."""
    row = RECORDS_TO_FORGET.one(connection, now=now)
    return bool(row and row[0])
