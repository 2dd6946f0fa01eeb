"""Queue rows: declare, configure, pause and count.

The columns of a queue's configuration are the fields of QueueConfig and are listed only there.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from ...types import BlockingHead, QueueConfig, QueueStats
from .base import UNFINISHED, Connection, Statement
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

# Each subquery reads one partial index, so a large number of finished messages costs nothing. Where
# an index answers two questions, json_array() returns both, because a second subquery would read
# it again.
#
# The two columns after the counts, and the second value of the first column, are the earliest times
# at which a message became due. For active messages it is the smallest visible_at of any priority,
# so that a starving message of low priority is noticed. Due schedules and expired leases count too:
# they wait for a reaper, and without one nothing else would show it.
STATS_COLUMNS = (
    """
           name, paused,
           (SELECT json_array(count(*), min(visible_at)) FROM mqlite_messages
             WHERE queue = name AND state = 'active' AND blocked = 0),
           (SELECT json_array(count(*), min(id)) FROM mqlite_messages
             WHERE queue = name AND state = 'active' AND blocked = 1),
           (SELECT json_array(count(*), sum(delivery_count > 0)) FROM mqlite_messages
             WHERE queue = name AND state = 'scheduled'),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'locked'),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'deferred'),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'dead_lettered'),
           (SELECT count(*) FROM mqlite_messages
             WHERE queue = name AND state = 'dead_lettered' AND finished_at > %(recent)s),
           (SELECT count(*) FROM mqlite_messages WHERE queue = name AND state = 'completed'),
           (SELECT visible_at FROM mqlite_messages
             WHERE queue = name AND state = 'scheduled' AND visible_at <= %(now)s AND blocked = 0
             ORDER BY visible_at LIMIT 1),
           (SELECT locked_until FROM mqlite_messages
             WHERE queue = name AND state = 'locked' AND locked_until <= %(now)s
             ORDER BY locked_until LIMIT 1),
           """
    + LIMIT_COLUMNS
)

QUEUE_STATS = Statement(
    """
    SELECT """
    + STATS_COLUMNS
    + """
      FROM mqlite_queues
     ORDER BY name
    """,
)

STATS_OF_QUEUE = Statement(
    """
    SELECT """
    + STATS_COLUMNS
    + """
      FROM mqlite_queues
     WHERE name = %(name)s
    """,
)

RECENT_MS = 3_600_000
"""Dead letters that are newer are counted apart."""


def queue_stats(connection: Connection, *, now: int) -> list[QueueStats]:
    """Return the number of messages per state for every queue, sorted by queue name."""
    rows = QUEUE_STATS.all(connection, now=now, recent=now - RECENT_MS)
    return [_queue_stats(row, now=now) for row in rows]


def stats_of(connection: Connection, name: str, *, now: int) -> QueueStats | None:
    """Return the number of messages per state of this queue, or None if there is no such queue."""
    row = STATS_OF_QUEUE.one(connection, name=name, now=now, recent=now - RECENT_MS)
    return _queue_stats(row, now=now) if row else None


def _queue_stats(row: tuple[Any, ...], *, now: int) -> QueueStats:
    name, paused, claimable_json, blocked_json, scheduled_json, *counts_and_times = row
    locked, deferred, dead_letters, recent_dead_letters, completed, *others = counts_and_times
    scheduled_since, leased_since, *limits = others
    claimable, active_since = json.loads(claimable_json)
    blocked, oldest_blocked = json.loads(blocked_json)
    scheduled, retrying = json.loads(scheduled_json)
    due_since = (active_since, scheduled_since, leased_since)
    return QueueStats(
        queue=name,
        paused=bool(paused),
        counts={
            "active": claimable + blocked,
            "locked": locked,
            "scheduled": scheduled,
            "deferred": deferred,
            "dead_lettered": dead_letters,
            "completed": completed,
        },
        blocked=blocked,
        oldest_blocked=oldest_blocked,
        retrying=retrying or 0,
        recent_dead_letters=recent_dead_letters,
        due_since_ms=min((at for at in due_since if at is not None), default=None),
        limits=queue_limits(limits, now=now),
    )


# Finds the blocked messages by id, and each head by mqlite_messages_head (queue, line).
BLOCKING_HEADS = Statement(
    """
    SELECT b.queue, b.id, b.visible_at, h.id, h.state, h.visible_at, h.delivery_count > 0
      FROM json_each(%(ids)s) AS chosen
     CROSS JOIN mqlite_messages AS b ON b.id = chosen.value
     CROSS JOIN mqlite_messages AS h ON h.queue = b.queue AND h.line = b.line
     WHERE h.id <> b.id AND h.blocked = 0
       AND h."""
    + UNFINISHED
    + """
    """,
)


def blocking_heads(connection: Connection, ids: Sequence[int]) -> dict[str, BlockingHead]:
    """Return the head that each of these blocked messages waits for, by queue."""
    return {
        queue: BlockingHead(
            blocked_id=blocked_id,
            blocked_since_ms=blocked_since,
            id=id,
            state=state,
            visible_at_ms=visible_at,
            is_retry=bool(is_retry),
        )
        for queue, blocked_id, blocked_since, id, state, visible_at, is_retry in (
            BLOCKING_HEADS.all(connection, ids=json.dumps(list(ids)))
        )
    }


# The message with the smallest id is the oldest, because `enqueued_at` increases with the id. The
# plus keeps SQLite from walking all messages by their ids.
OLDEST_ENQUEUED_AT = Statement(
    """
    SELECT enqueued_at FROM mqlite_messages NOT INDEXED
     WHERE id = (SELECT min(id)
                   FROM (SELECT min(+id) AS id FROM mqlite_messages
                          WHERE queue = %(queue)s AND state = 'active'
                          UNION ALL
                         SELECT min(+id) FROM mqlite_messages
                          WHERE queue = %(queue)s AND state = 'locked'))
    """,
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
