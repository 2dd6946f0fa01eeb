"""End leases without a settle, activate due messages, and end those whose time to live is over."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...types import Lease
from .base import Connection, Statement, encode_leases
from .settle import MAX_ERRORS


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A message that time has moved on, and where to."""

    queue: str
    message_id: int
    state: str
    delivery_count: int
    content_type: str | None
    subject: str | None


def released_rows(rows: Iterable[tuple[Any, ...]]) -> list[Released]:
    """Return the rows of a statement that ends leases as `Released` values."""
    names = ("queue", "message_id", "state", "delivery_count", "content_type", "subject")
    return [Released(**dict(zip(names, row, strict=True))) for row in rows]


# Written once: what every statement that ends a lease without a settle does. The delivery was
# counted when it was claimed, so a message whose worker dies each time still reaches its limit. The
# statement that joins this text defines `spent` (no delivery is left) for the row `m`.
END_LEASE = """
       SET state = CASE WHEN spent THEN 'dead_lettered' ELSE 'active' END,
           finished_at = CASE WHEN spent THEN %(now)s ELSE 0 END,
           dead_letter_reason = CASE WHEN spent THEN 'MaxDeliveryCountExceeded' END,
           errors = json_insert(
               CASE WHEN json_array_length(m.errors) >= %(max_errors)s
                    THEN json_remove(m.errors, '$[0]')
                    ELSE coalesce(m.errors, '[]') END, '$[#]',
               json_object(
                   'class', %(error_class)s,
                   'message', %(reason)s,
                   'delivery', m.delivery_count,
                   'worker', m.locked_by,
                   'started_at', m.locked_at,
                   'failed_at', %(now)s)),
           lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0"""

# Served by mqlite_messages_locked (queue, locked_until) WHERE state = 'locked', one seek per queue.
# CROSS JOIN keeps the queues outside: inside, the planner would walk every lease there is.
RELEASE_EXPIRED = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
    """
    + END_LEASE
    + """,
           dead_letter_description =
               CASE WHEN spent
                    THEN 'the lease of delivery ' || m.delivery_count || ' ran out' END
      FROM (SELECT id AS bounded,
                   e.delivery_count >=
                       coalesce(nullif(e.max_delivery_count, 0), q.max_delivery_count) AS spent
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS e INDEXED BY mqlite_messages_locked ON e.queue = q.name
             WHERE e.state = 'locked' AND e.locked_until <= %(now)s
             LIMIT %(limit)s)
     WHERE m.id = bounded AND m.state = 'locked' AND m.locked_until <= %(now)s
    RETURNING queue, id, state, delivery_count, content_type, subject
    """,
)


def release_expired(connection: Connection, *, now: int, limit: int) -> list[Released]:
    """Make at most `limit` messages whose lease ran out claimable again, or dead letters."""
    rows = RELEASE_EXPIRED.all(
        connection,
        now=now,
        limit=limit,
        error_class="django_mqlite.exceptions.LeaseExpired",
        reason="the worker neither settled nor renewed in time",
        max_errors=MAX_ERRORS,
    )
    return released_rows(rows)


# The same rule for the leases of one worker that is known to be gone: waiting for them to run out
# would only cost time. Few messages are locked at once, so the worker's name needs no index.
RELEASE_WORKER = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
    """
    + END_LEASE
    + """,
           dead_letter_description =
               CASE WHEN spent
                    THEN 'the worker of delivery ' || m.delivery_count || ' died' END
      FROM (SELECT id AS bounded,
                   e.delivery_count >=
                       coalesce(nullif(e.max_delivery_count, 0), q.max_delivery_count) AS spent
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS e INDEXED BY mqlite_messages_locked
                ON e.queue = q.name
             WHERE e.state = 'locked' AND e.locked_by = %(worker)s
             LIMIT %(limit)s)
     WHERE m.id = bounded AND m.state = 'locked' AND m.locked_by = %(worker)s
    RETURNING queue, id, state, delivery_count, content_type, subject
    """,
)


def release_worker(
    connection: Connection, worker: str, *, reason: str, now: int, limit: int
) -> list[Released]:
    """Make at most `limit` messages that `worker` holds claimable again, or dead letters."""
    rows = RELEASE_WORKER.all(
        connection,
        worker=worker,
        error_class="django_mqlite.exceptions.WorkerDied",
        reason=reason,
        now=now,
        limit=limit,
        max_errors=MAX_ERRORS,
    )
    return released_rows(rows)


# Served by mqlite_messages_scheduled (queue, visible_at) WHERE state = 'scheduled', like above.
ACTIVATE_DUE = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET state = 'active'
     WHERE id IN (SELECT m.id
                    FROM mqlite_queues AS q
                   CROSS JOIN mqlite_messages AS m ON m.queue = q.name
                   WHERE m.state = 'scheduled' AND m.visible_at <= %(now)s
                   LIMIT %(limit)s)
       AND state = 'scheduled' AND visible_at <= %(now)s
    """,
)


def activate_due(connection: Connection, *, now: int, limit: int) -> int:
    """Make at most `limit` scheduled messages claimable whose time has come."""
    return ACTIVATE_DUE.run(connection, now=now, limit=limit)


# Served by mqlite_messages_expiring (expires_at). A live lease is left to end first.
EXPIRED = Statement(
    """
    SELECT m.id, q.dead_letter_on_expire
      FROM mqlite_messages AS m
      JOIN mqlite_queues AS q ON q.name = m.queue
     WHERE m.expires_at > 0 AND m.expires_at <= %(now)s
       AND m.state IN ('active', 'deferred', 'scheduled')
     LIMIT %(limit)s
    """,
)


def expired(connection: Connection, *, now: int, limit: int) -> tuple[list[int], list[int]]:
    """At most `limit` messages whose time to live is over: ids to bury, and ids to discard."""
    rows = EXPIRED.all(connection, now=now, limit=limit)
    bury = [id for id, dead_letter in rows if dead_letter]
    discard = [id for id, dead_letter in rows if not dead_letter]
    return bury, discard


BURY_EXPIRED = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET state = 'dead_lettered', blocked = 0, finished_at = %(now)s,
           dead_letter_reason = 'TTLExpired',
           dead_letter_description = 'its time to live was over before it was handled'
     WHERE id IN (SELECT value FROM json_each(%(ids)s))
       AND expires_at > 0 AND expires_at <= %(now)s
       AND state IN ('active', 'deferred', 'scheduled')
    RETURNING queue, id, state, delivery_count, content_type, subject
    """,
)


def bury_expired(connection: Connection, ids: Sequence[int], *, now: int) -> list[Released]:
    """Make dead letters of these, as far as their time to live is still over."""
    rows = BURY_EXPIRED.all(connection, ids=json.dumps(list(ids)), now=now)
    return released_rows(rows)


DISCARD_EXPIRED = Statement(
    """
    DELETE FROM mqlite_messages NOT INDEXED
     WHERE id IN (SELECT value FROM json_each(%(ids)s))
       AND expires_at > 0 AND expires_at <= %(now)s
       AND state IN ('active', 'deferred', 'scheduled')
    """,
)


def discard_expired(connection: Connection, ids: Sequence[int], *, now: int) -> int:
    """Delete these, as far as their time to live is still over; how many there were."""
    return DISCARD_EXPIRED.run(connection, ids=json.dumps(list(ids)), now=now)


# Two seeks per queue and one for the times to live. A read: an idle reaper takes no write lock.
# What no sweep can move, because its queue is missing, is not due either.
NEXT_EVENT = Statement(
    """
    SELECT min(at) FROM (
        SELECT (SELECT min(locked_until) FROM mqlite_messages
                 WHERE queue = name AND state = 'locked') AS at FROM mqlite_queues
        UNION ALL
        SELECT (SELECT min(visible_at) FROM mqlite_messages
                 WHERE queue = name AND state = 'scheduled') FROM mqlite_queues
        UNION ALL
        SELECT (SELECT min(expires_at) FROM mqlite_messages AS m
                 WHERE expires_at > 0 AND state IN ('active', 'deferred', 'scheduled')
                   AND EXISTS (SELECT 1 FROM mqlite_queues WHERE name = m.queue)))
    """,
)


def next_event(connection: Connection) -> int | None:
    """Return when the next lease expires, schedule is due or time to live ends, or None."""
    row = NEXT_EVENT.one(connection)
    return row[0] if row else None


HELD_TOKEN = Statement(
    "SELECT lock_token FROM mqlite_messages WHERE id = %(id)s AND state = 'locked'",
)


def held_token(connection: Connection, id: int) -> str | None:
    """The token of the lease that the message is under; None if it is under none."""
    row = HELD_TOKEN.one(connection, id=id)
    return row[0] if row else None


RELEASE_LEASE = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
    """
    + END_LEASE
    + """,
           dead_letter_description =
               CASE WHEN spent
                    THEN 'the lease of delivery ' || m.delivery_count || ' was ended by hand' END
      FROM (SELECT id AS bounded,
                   delivery_count >=
                       coalesce(nullif(mqlite_messages.max_delivery_count, 0),
                                mqlite_queues.max_delivery_count) AS spent
              FROM mqlite_messages JOIN mqlite_queues ON name = queue
             WHERE id = %(id)s)
     WHERE m.id = bounded AND m.lock_token = %(lock_token)s AND m.state = 'locked'
    RETURNING queue, id, state, delivery_count, content_type, subject
    """,
)


def release_lease(
    connection: Connection, id: int, lock_token: str, *, reason: str, now: int
) -> list[Released]:
    """Give the message back, or to the dead letters at its bound; [] if the lease is another."""
    rows = RELEASE_LEASE.all(
        connection,
        id=id,
        lock_token=lock_token,
        error_class="django_mqlite.exceptions.LeaseReleased",
        reason=reason,
        now=now,
        max_errors=MAX_ERRORS,
    )
    return released_rows(rows)


MAX_UNCOUNTED_INTERRUPTIONS = 10
"""Further interruptions of a message count as deliveries."""

# The claim has counted the delivery, and it is taken back here: a worker that has to stop is not
# the fault of the message. The limit is for a message that makes its worker stop each time. What is
# returned is the number that the delivery had.
INTERRUPT = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
    """
    + END_LEASE
    + """,
           dead_letter_description =
               CASE WHEN spent
                    THEN 'delivery ' || m.delivery_count || ' was interrupted, as were '
                         || m.interruptions || ' before' END,
           delivery_count = m.delivery_count - uncounted,
           interruptions = m.interruptions + 1
      FROM (SELECT e.id AS interrupted,
                   json_extract(lease.value, '$[1]') AS token,
                   json_extract(lease.value, '$[2]') AS of_queue,
                   e.interruptions < %(max_uncounted)s AS uncounted,
                   e.interruptions >= %(max_uncounted)s AND e.delivery_count >=
                       coalesce(nullif(e.max_delivery_count, 0), q.max_delivery_count) AS spent
              FROM json_each(%(leases)s) AS lease
             CROSS JOIN mqlite_messages AS e NOT INDEXED
                ON e.id = json_extract(lease.value, '$[0]')
              JOIN mqlite_queues AS q ON q.name = e.queue)
     WHERE m.id = interrupted AND m.lock_token = token AND m.queue = of_queue
       AND m.state = 'locked' AND m.locked_until > %(now)s
    RETURNING queue, id, state, delivery_count + (interruptions <= %(max_uncounted)s),
              content_type, subject
    """,
)


def interrupt(
    connection: Connection, leases: Sequence[Lease], *, reason: str, now: int
) -> list[Released]:
    """Give these messages back without counting the delivery; a lost lease changes nothing.

    After MAX_UNCOUNTED_INTERRUPTIONS the delivery counts, and can be the last one.
    """
    rows = INTERRUPT.all(
        connection,
        leases=encode_leases(leases),
        error_class="django_mqlite.exceptions.Interrupted",
        reason=reason,
        now=now,
        max_errors=MAX_ERRORS,
        max_uncounted=MAX_UNCOUNTED_INTERRUPTIONS,
    )
    return released_rows(rows)
