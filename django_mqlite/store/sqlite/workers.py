"""Who is at work on this file: a record in mqlite_meta per worker, for people and for speed.

Correctness rests on leases alone, so nothing refers to these records and losing one loses nothing.
"""

import json
from collections.abc import Sequence

from .base import Connection, Statement

# ':' < ';' in every collation that matters here, so the range is the prefix 'worker:'.
WORKER_RECORDS = Statement(
    """
    SELECT substr(key, 8), value, updated_at
      FROM mqlite_meta
     WHERE key > 'worker:' AND key < 'worker;'
     ORDER BY key
    """,
)


def worker_records(connection: Connection) -> list[tuple[str, str, int]]:
    """Each worker's id, what it has written about itself (JSON), and when."""
    return WORKER_RECORDS.all(connection)


RECORD_WORKER = Statement(
    """
    INSERT INTO mqlite_meta (key, value, updated_at)
    VALUES ('worker:' || %(worker)s, %(facts)s, %(now)s)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
    """,
)


def record_worker(connection: Connection, worker: str, facts: str, *, now: int) -> None:
    """Say that the worker lives, and what it is doing."""
    RECORD_WORKER.run(connection, worker=worker, facts=facts, now=now)


FORGET_WORKER = Statement(
    "DELETE FROM mqlite_meta WHERE key = 'worker:' || %(worker)s RETURNING value",
)


def forget_worker(connection: Connection, worker: str) -> str | None:
    """The worker is gone; what it had written about itself, None if it was not there."""
    row = FORGET_WORKER.one(connection, worker=worker)
    return row[0] if row else None


SETTLED_BEFORE = Statement("SELECT value FROM mqlite_meta WHERE key = 'settled'")


def settled_before(connection: Connection) -> str | None:
    """What workers that are gone have counted (JSON)."""
    row = SETTLED_BEFORE.one(connection)
    return row[0] if row else None


KEEP_SETTLED = Statement(
    """
    INSERT INTO mqlite_meta (key, value, updated_at) VALUES ('settled', %(tallies)s, %(now)s)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
    """,
)


def keep_settled(connection: Connection, tallies: str, *, now: int) -> None:
    """Keep what workers that are gone have counted."""
    KEEP_SETTLED.run(connection, tallies=tallies, now=now)


# Few messages are locked at once, so the worker's name needs no index of its own.
HELD_LEASES = Statement(
    """
    SELECT m.locked_by, m.queue, m.id, m.lock_token, m.locked_at, m.locked_until,
           q.lock_duration_ms
      FROM mqlite_queues AS q
     CROSS JOIN mqlite_messages AS m INDEXED BY mqlite_messages_locked ON m.queue = q.name
     WHERE m.state = 'locked' AND m.locked_until > %(now)s
       AND m.locked_by IN (SELECT value FROM json_each(%(workers)s))
    """,
)


def held_leases(
    connection: Connection, workers: Sequence[str], *, now: int
) -> list[tuple[str, str, int, str, int, int, int]]:
    """Per live lease of these workers: worker, queue, id, token, locked at and until, duration."""
    return HELD_LEASES.all(connection, workers=json.dumps(list(workers)), now=now)
