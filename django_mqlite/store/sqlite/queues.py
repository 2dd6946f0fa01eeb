"""Queue rows: declare, configure, pause and count.

The columns of a queue's configuration are the fields of QueueConfig and are listed only there.
"""

from dataclasses import asdict, fields
from itertools import islice
from typing import Any

from ...types import QueueConfig, QueueStats
from .base import Connection, Statement
from .limits import LIMIT_COLUMNS, queue_limits

QUEUE_NAMES = Statement("SELECT name FROM mqlite_queues ORDER BY name")


def queue_names(connection: Connection) -> list[str]:
    """Return the names of all queues, sorted."""
    return [name for (name,) in QUEUE_NAMES.all(connection)]


COLUMNS = [field.name for field in fields(QueueConfig)]
CONFIG_COLUMNS = ", ".join(COLUMNS)
CONFIG_VALUES = ", ".join(f"%({column})s" for column in COLUMNS)
EXCLUDED_COLUMNS = ", ".join(f"excluded.{column}" for column in COLUMNS)

# Returns no row if the queue exists with this configuration: a sync that changes nothing writes
# nothing.
DECLARE_QUEUE = Statement(
    """
    INSERT INTO mqlite_queues (name, created_at, updated_at, """
    + CONFIG_COLUMNS
    + """)
    VALUES (%(name)s, %(now)s, %(now)s, """
    + CONFIG_VALUES
    + """)
    ON CONFLICT (name) DO UPDATE SET ("""
    + CONFIG_COLUMNS
    + """) = ("""
    + EXCLUDED_COLUMNS
    + """), updated_at = excluded.updated_at
     WHERE ("""
    + CONFIG_COLUMNS
    + """) IS NOT ("""
    + EXCLUDED_COLUMNS
    + """)
    RETURNING name
    """,
)


def declare_queue(connection: Connection, name: str, config: QueueConfig, *, now: int) -> bool:
    """Create the queue or change its row to `config`; return True if a row was written.

    `paused` is not configuration: a paused queue stays paused.
    """
    return DECLARE_QUEUE.one(connection, name=name, now=now, **asdict(config)) is not None


QUEUE_CONFIG = Statement(
    "SELECT " + CONFIG_COLUMNS + " FROM mqlite_queues WHERE name = %(name)s",
)


def queue_config(connection: Connection, name: str) -> QueueConfig | None:
    """Return the configuration of the queue, or None if there is no such queue."""
    row = QUEUE_CONFIG.one(connection, name=name)
    return QueueConfig(**dict(zip(COLUMNS, row, strict=True))) if row else None


# Each message stores its line, which depends on whether the queue is strict_fifo. The ordering mode
# therefore cannot change while the queue has such messages.
ORDERED_MESSAGES = Statement(
    """
    SELECT ordering_mode,
           EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = name AND state = 'active')
        OR EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = name AND state = 'locked')
        OR EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = name AND state = 'scheduled')
        OR EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = name AND state = 'deferred')
        OR EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = name AND state = 'dead_lettered')
      FROM mqlite_queues
     WHERE name = %(name)s
    """,
)

PAUSE_QUEUE = Statement(
    """
    UPDATE mqlite_queues SET paused = %(paused)s, updated_at = %(now)s
     WHERE name = %(name)s AND paused <> %(paused)s
    """,
)

# Each count reads one partial index, so a large number of finished messages costs nothing.
#
# The three columns after the counts are the earliest time at which a message became due. For active
# messages it is the smallest visible_at of any priority, so that a starving message of low priority
# is noticed. Due schedules and expired leases count too: they wait for a reaper, and without one
# nothing else would show it.
QUEUE_STATS = Statement(
    """
    SELECT name, paused,
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'active'),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'locked'),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'scheduled'),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'deferred'),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'dead_lettered'),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'completed'),
           (SELECT min(visible_at) FROM mqlite_messages
             WHERE queue = name AND state = 'active' AND blocked = 0),
           (SELECT visible_at FROM mqlite_messages
             WHERE queue = name AND state = 'scheduled' AND visible_at <= %(now)s AND blocked = 0
             ORDER BY visible_at LIMIT 1),
           (SELECT locked_until FROM mqlite_messages
             WHERE queue = name AND state = 'locked' AND locked_until <= %(now)s
             ORDER BY locked_until LIMIT 1),
           """
    + LIMIT_COLUMNS
    + """
      FROM mqlite_queues
     ORDER BY name
    """,
)

STATES = ("active", "locked", "scheduled", "deferred", "dead_lettered", "completed")


def queue_stats(connection: Connection, *, now: int) -> list[QueueStats]:
    """Return the number of messages per state for every queue, sorted by queue name."""
    return [_queue_stats(*row, now=now) for row in QUEUE_STATS.all(connection, now=now)]


def _queue_stats(name: str, paused: int, *columns: Any, now: int) -> QueueStats:
    values = iter(columns)
    return QueueStats(
        queue=name,
        paused=bool(paused),
        counts={state: next(values) for state in STATES},
        due_since_ms=min((at for at in islice(values, 3) if at is not None), default=None),
        limits=queue_limits(values, now=now),
    )


# One branch per state, because each partial index covers one state and none covers all of them.
EMPTY_QUEUE = Statement(
    """
    DELETE FROM mqlite_messages
     WHERE id IN (SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'active'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'locked'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'scheduled'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'deferred'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s AND state = 'completed'
                   UNION ALL
                  SELECT id FROM mqlite_messages WHERE queue = %(queue)s
                                                   AND state = 'dead_lettered'
                   LIMIT %(limit)s)
       AND queue = %(queue)s
    """,
)

# Whether deleting the queue would delete work: completed messages are only kept for inspection.
HAS_WORK = Statement(
    """
    SELECT EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = %(queue)s AND state = 'active')
        OR EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = %(queue)s AND state = 'locked')
        OR EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = %(queue)s AND state = 'scheduled')
        OR EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = %(queue)s AND state = 'deferred')
        OR EXISTS (SELECT 1 FROM mqlite_messages WHERE queue = %(queue)s
                                                   AND state = 'dead_lettered')
    """,
)

# The foreign key makes SQLite search all messages for this queue. There is no index for that,
# because no other statement would use it.
DELETE_QUEUE = Statement("DELETE FROM mqlite_queues WHERE name = %(name)s AND kind = %(kind)s")
