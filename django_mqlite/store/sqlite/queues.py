"""Queue rows: created, configured, paused, resumed."""

from dataclasses import asdict, fields

from ...types import QueueConfig, QueueStats
from .base import Connection, Statement

QUEUE_NAMES = Statement("SELECT name FROM mqlite_queues ORDER BY name")


def queue_names(connection: Connection) -> list[str]:
    """The names of all queues, sorted."""
    return [name for (name,) in QUEUE_NAMES.all(connection)]


# RETURNING nothing for a queue that exists and already says the same: a sync that changes nothing
# writes nothing.
DECLARE_QUEUE = Statement(
    """
    INSERT INTO mqlite_queues (
        name, kind, ordering_mode, lock_duration_ms, max_delivery_count,
        backoff_base_ms, backoff_max_ms, default_ttl_ms, dead_letter_on_expire, dedup_window_ms,
        retain_completed_ms, dlq_max_age_ms, dlq_max_count, dlq_max_bytes, created_at, updated_at)
    VALUES (
        %(name)s, %(kind)s, %(ordering_mode)s, %(lock_duration_ms)s, %(max_delivery_count)s,
        %(backoff_base_ms)s, %(backoff_max_ms)s, %(default_ttl_ms)s, %(dead_letter_on_expire)s,
        %(dedup_window_ms)s, %(retain_completed_ms)s, %(dlq_max_age_ms)s, %(dlq_max_count)s,
        %(dlq_max_bytes)s, %(now)s, %(now)s)
    ON CONFLICT (name) DO UPDATE SET
        ordering_mode = excluded.ordering_mode,
        lock_duration_ms = excluded.lock_duration_ms,
        max_delivery_count = excluded.max_delivery_count,
        backoff_base_ms = excluded.backoff_base_ms,
        backoff_max_ms = excluded.backoff_max_ms,
        default_ttl_ms = excluded.default_ttl_ms,
        dead_letter_on_expire = excluded.dead_letter_on_expire,
        dedup_window_ms = excluded.dedup_window_ms,
        retain_completed_ms = excluded.retain_completed_ms,
        dlq_max_age_ms = excluded.dlq_max_age_ms,
        dlq_max_count = excluded.dlq_max_count,
        dlq_max_bytes = excluded.dlq_max_bytes,
        updated_at = excluded.updated_at
     WHERE (ordering_mode, lock_duration_ms, max_delivery_count, backoff_base_ms, backoff_max_ms,
            default_ttl_ms, dead_letter_on_expire, dedup_window_ms, retain_completed_ms,
            dlq_max_age_ms, dlq_max_count, dlq_max_bytes)
        IS NOT (excluded.ordering_mode, excluded.lock_duration_ms, excluded.max_delivery_count,
            excluded.backoff_base_ms, excluded.backoff_max_ms, excluded.default_ttl_ms,
            excluded.dead_letter_on_expire, excluded.dedup_window_ms, excluded.retain_completed_ms,
            excluded.dlq_max_age_ms, excluded.dlq_max_count, excluded.dlq_max_bytes)
    RETURNING name
    """,
)


def declare_queue(connection: Connection, name: str, config: QueueConfig, *, now: int) -> bool:
    """Create the queue or bring its row to `config`; whether anything had to change.

    `paused` is not configuration: a paused queue stays paused.
    """
    row = DECLARE_QUEUE.one(connection, name=name, now=now, **asdict(config))
    return row is not None


QUEUE_CONFIG = Statement(
    """
    SELECT kind, ordering_mode, lock_duration_ms, max_delivery_count, backoff_base_ms,
           backoff_max_ms, default_ttl_ms, dead_letter_on_expire, dedup_window_ms,
           retain_completed_ms, dlq_max_age_ms, dlq_max_count, dlq_max_bytes
      FROM mqlite_queues
     WHERE name = %(name)s
    """,
)


def queue_config(connection: Connection, name: str) -> QueueConfig | None:
    """The queue's row; None for no such queue."""
    row = QUEUE_CONFIG.one(connection, name=name)
    if row is None:
        return None
    columns = [field.name for field in fields(QueueConfig)]
    return QueueConfig(**dict(zip(columns, row, strict=True)))


# Strict or not decides which line a message stands in, and that is written into the messages.
ORDERING_HOLDERS = Statement(
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


def ordering_held(connection: Connection, name: str) -> tuple[str, bool] | None:
    """The queue's ordering mode and whether messages rely on it; None for no such queue."""
    row = ORDERING_HOLDERS.one(connection, name=name)
    return (row[0], bool(row[1])) if row else None


PAUSE_QUEUE = Statement(
    """
    UPDATE mqlite_queues SET paused = %(paused)s, updated_at = %(now)s
     WHERE name = %(name)s AND paused <> %(paused)s
    """,
)


def pause_queue(connection: Connection, name: str, *, paused: bool, now: int) -> bool:
    """Stop or resume claims from the queue; whether that was a change."""
    return PAUSE_QUEUE.run(connection, name=name, paused=int(paused), now=now) > 0


# Each count runs over one partial index, so finished backlogs cost nothing.
# The oldest due message is the smallest visible_at of the unblocked active ones, of whatever
# priority: one that starves behind fresh ones has the lowest. Like the count of them it reads their
# index and no row. Due as well is what only a reaper can bring back, a schedule that has come and a
# lease that ran out: where none runs, nothing else would show that they wait.
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
             ORDER BY locked_until LIMIT 1)
      FROM mqlite_queues
     ORDER BY name
    """,
)

STATES = ("active", "locked", "scheduled", "deferred", "dead_lettered", "completed")


def queue_stats(connection: Connection, *, now: int) -> list[QueueStats]:
    """The depth of every queue, by name."""
    return [
        QueueStats(
            queue=name,
            paused=bool(paused),
            counts=dict(zip(STATES, values, strict=False)),
            due_since_ms=min((at for at in values[len(STATES) :] if at is not None), default=None),
        )
        for name, paused, *values in QUEUE_STATS.all(connection, now=now)
    ]
