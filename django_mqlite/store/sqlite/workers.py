"""The register of live workers, and the leases that they hold.

Each worker has a row in mqlite_meta, for monitoring and faster recovery. Correctness depends only
on leases, so losing a row does no harm.
"""

import json
from collections.abc import Sequence

from ...message import TASK
from .base import Connection, Statement

# ':' sorts directly before ';', so the range is the prefix 'worker:'.
WORKER_RECORDS = Statement(
    """
    SELECT substr(key, 8), value, updated_at
      FROM mqlite_meta
     WHERE key > 'worker:' AND key < 'worker;'
     ORDER BY key
    """,
)

RECORD_WORKER = Statement(
    """
    INSERT INTO mqlite_meta (key, value, updated_at)
    VALUES ('worker:' || %(worker)s, %(record)s, %(now)s)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
    """,
)

DELETE_WORKER = Statement("DELETE FROM mqlite_meta WHERE key = 'worker:' || %(worker)s")

# The delivery counts of each worker, and of those that have unregistered, as JSON.
DELIVERIES = Statement(
    """
    SELECT value FROM mqlite_meta
     WHERE key = 'settled' OR (key > 'deliveries:' AND key < 'deliveries;')
    """,
)

RECORD_DELIVERIES = Statement(
    """
    INSERT INTO mqlite_meta (key, value, updated_at)
    VALUES ('deliveries:' || %(worker)s, %(tallies)s, %(now)s)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
    """,
)

DELETE_DELIVERIES = Statement(
    "DELETE FROM mqlite_meta WHERE key = 'deliveries:' || %(worker)s RETURNING value",
)

# The delivery counts of workers that have unregistered, as JSON.
UNREGISTERED_TALLIES = Statement("SELECT value FROM mqlite_meta WHERE key = 'settled'")

RECORD_UNREGISTERED_TALLIES = Statement(
    """
    INSERT INTO mqlite_meta (key, value, updated_at) VALUES ('settled', %(tallies)s, %(now)s)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
    """,
)

# Few messages are locked at the same time, so the worker's name needs no index.
HELD_LEASES = Statement(
    """
    SELECT m.locked_by, m.queue, m.id, m.lock_token, m.locked_at, m.locked_until,
           q.lock_duration_ms,
           CASE WHEN m.content_type = %(task)s AND json_valid(m.properties)
                THEN json_extract(m.properties, '$.timeout_ms') END
      FROM mqlite_queues AS q
     CROSS JOIN mqlite_messages AS m INDEXED BY mqlite_messages_locked ON m.queue = q.name
     WHERE m.state = 'locked' AND m.locked_until > %(now)s
       AND m.locked_by IN (SELECT value FROM json_each(%(workers)s))
    """,
)


def held_leases(
    connection: Connection, workers: Sequence[str], *, now: int
) -> list[tuple[str, str, int, str, int, int, int, object]]:
    """Return the live leases of these workers.

    A row is: worker, queue, id, lock token, locked at, locked until, the queue's lock duration, and
    the property `timeout_ms` of a task.
    """
    return HELD_LEASES.all(connection, workers=json.dumps(list(workers)), now=now, task=TASK)


# Reads the rows of the live leases, for the names of their workers. There are few of them.
BUSY_SLOTS = Statement(
    """
    SELECT m.locked_by, count(*)
      FROM mqlite_queues AS q
     CROSS JOIN mqlite_messages AS m INDEXED BY mqlite_messages_locked ON m.queue = q.name
     WHERE m.state = 'locked' AND m.locked_until > %(now)s
       AND m.locked_by IN (SELECT value FROM json_each(%(workers)s))
     GROUP BY m.locked_by
    """,
)


def busy_slots(
    connection: Connection, workers: Sequence[str], *, now: int
) -> list[tuple[str, int]]:
    """Return the number of live leases of these workers, for those that hold some."""
    return BUSY_SLOTS.all(connection, workers=json.dumps(list(workers)), now=now)
