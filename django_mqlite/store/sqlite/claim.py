"""Claim messages under a lease or delete them, and repeat a claim whose response was lost."""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from ...limits import UNLIMITED, QueueLimits
from .base import (
    M_COLUMNS,
    MESSAGE_COLUMNS,
    UNFINISHED,
    Connection,
    MessageRow,
    Statement,
    in_claim_order,
)
from .limits import limits_of

# A sum above 63 bits is a REAL, which the column rejects: a single row from another program would
# make every claim fail.
NEXT_DELIVERY_COUNT = "min(delivery_count, 9223372036854775806) + 1"

# A claim from a queue with a limit finds nothing, unless the caller has counted the queue's room in
# this transaction and passes it as `limit` together with `within_limits`. A queue without limits
# therefore needs no other statement, and reads them in a row that it reads anyway.
IS_OPEN = """(SELECT paused = 0 AND
                                 (%(within_limits)s OR (max_in_flight = 0 AND rate_count = 0))
                            FROM mqlite_queues WHERE name = %(queue)s)"""
"""The condition that messages of the queue can be claimed."""

# Served by mqlite_messages_active (queue, blocked, priority DESC, id) WHERE state = 'active'.
# Only heads of lines are unblocked, so a batch never has two messages of a group, and a blocked
# backlog costs nothing.
#
# The whole batch is one statement with one time. The secret is 128 random bits; the id after it
# makes each token valid for one message of the batch only.
CLAIM = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET state = 'locked',
           locked_at = %(now)s,
           locked_until = %(now)s + max(%(at_least)s, coalesce(
               %(lock_duration)s,
               (SELECT lock_duration_ms FROM mqlite_queues WHERE name = queue))),
           lock_token = %(secret)s || printf('%%016x', id),
           locked_by = %(worker)s,
           delivery_count = """
    + NEXT_DELIVERY_COUNT
    + """
     WHERE id IN (SELECT id FROM mqlite_messages
                   WHERE queue = %(queue)s AND state = 'active' AND blocked = 0
                     AND (expires_at = 0 OR expires_at > %(now)s)
                     AND """
    + IS_OPEN
    + """
                   ORDER BY priority DESC, id
                   LIMIT %(limit)s)
       AND state = 'active' AND blocked = 0
    RETURNING """
    + MESSAGE_COLUMNS,
)


def claim(  # noqa: PLR0913 - the parameters of the statement
    connection: Connection,
    queue: str,
    *,
    now: int,
    limit: int,
    within_limits: bool,
    secret: str,
    worker: str | None,
    lock_duration: int | None,
    at_least: int = 0,
) -> list[MessageRow]:
    """Lock at most `limit` messages and count a delivery of each.

    Returns none from a queue with max_in_flight or a rate, unless `within_limits` confirms that it
    has room for `limit` messages. `lock_duration` and `at_least`, its minimum, are in milliseconds;
    None means the queue's.
    """
    rows = CLAIM.all(
        connection,
        queue=queue,
        now=now,
        limit=limit,
        within_limits=within_limits,
        secret=secret,
        worker=worker,
        lock_duration=lock_duration,
        at_least=at_least,
    )
    return in_claim_order(rows)


# The queue's order does not apply, because the caller names the ids, but the group's does: a
# deferred message that is not the head of its line waits until its group is free.
CLAIM_DEFERRED = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET state = 'locked',
           locked_at = %(now)s,
           locked_until = %(now)s + coalesce(
               %(lock_duration)s,
               (SELECT lock_duration_ms FROM mqlite_queues WHERE name = queue)),
           lock_token = %(secret)s || printf('%%016x', id),
           locked_by = %(worker)s,
           delivery_count = """
    + NEXT_DELIVERY_COUNT
    + """
     WHERE id IN (SELECT m.id
                    FROM json_each(%(ids)s) AS requested
                   CROSS JOIN mqlite_messages AS m ON m.id = requested.value
                   WHERE m.queue = %(queue)s AND """
    + IS_OPEN
    + """
                     AND m.state = 'deferred' AND m.blocked = 0
                     AND (m.expires_at = 0 OR m.expires_at > %(now)s)
                   LIMIT %(limit)s)
       AND state = 'deferred' AND blocked = 0
    RETURNING """
    + MESSAGE_COLUMNS,
)


def claim_deferred(  # noqa: PLR0913 - the parameters of the statement
    connection: Connection,
    queue: str,
    ids: Sequence[int],
    *,
    now: int,
    limit: int,
    within_limits: bool,
    secret: str,
    worker: str | None,
    lock_duration: int | None,
) -> list[MessageRow]:
    """Lock the first `limit` of `ids` that are deferred in the queue, and count a delivery of each.

    `within_limits` as in claim().
    """
    rows = CLAIM_DEFERRED.all(
        connection,
        queue=queue,
        ids=json.dumps(list(ids)),
        now=now,
        limit=limit,
        within_limits=within_limits,
        secret=secret,
        worker=worker,
        lock_duration=lock_duration,
    )
    return in_claim_order(rows)


# The delivery is counted, although the row that stores the count is deleted.
DELETED_COLUMNS = MESSAGE_COLUMNS.replace(" delivery_count,", f" {NEXT_DELIVERY_COUNT},")

# Served by mqlite_messages_active, like CLAIM.
CLAIM_AND_DELETE = Statement(
    """
    DELETE FROM mqlite_messages NOT INDEXED
     WHERE id IN (SELECT id FROM mqlite_messages
                   WHERE queue = %(queue)s AND state = 'active' AND blocked = 0
                     AND (expires_at = 0 OR expires_at > %(now)s)
                     AND """
    + IS_OPEN
    + """
                   ORDER BY priority DESC, id
                   LIMIT %(limit)s)
       AND state = 'active' AND blocked = 0
    RETURNING """
    + DELETED_COLUMNS,
)


def claim_and_delete(
    connection: Connection, queue: str, *, now: int, limit: int, within_limits: bool
) -> list[MessageRow]:
    """Delete at most `limit` messages and return them: no lease and no second delivery.

    `within_limits` as in claim().
    """
    rows = CLAIM_AND_DELETE.all(
        connection, queue=queue, now=now, limit=limit, within_limits=within_limits
    )
    return in_claim_order(rows)


# Served by the unique index mqlite_messages_head (queue, line).
HAS_LINES = Statement(
    """
    SELECT EXISTS (SELECT 1 FROM mqlite_messages
                    WHERE queue = %(queue)s AND line IS NOT NULL AND blocked = 0
                      AND """
    + UNFINISHED
    + """)
    """,
)

# A read, so that an idle worker never takes the write lock.
CLAIMABLE = Statement(
    """
    SELECT q.name, q.max_in_flight > 0 OR q.rate_count > 0
      FROM mqlite_queues AS q
     WHERE q.paused = 0
       AND EXISTS (SELECT 1 FROM mqlite_messages AS m
                    WHERE m.queue = q.name AND m.state = 'active' AND m.blocked = 0
                      AND (m.expires_at = 0 OR m.expires_at > %(now)s))
    """,
)


def claimable_queues(connection: Connection, *, now: int) -> dict[str, QueueLimits]:
    """Return the queues that have claimable messages, with their limits, which may forbid a claim.

    Queues without limits cost nothing more.
    """
    rows = CLAIMABLE.all(connection, now=now)
    limited = [name for name, is_limited in rows if is_limited]
    limits = limits_of(connection, limited, now=now) if limited else {}
    return {name: limits.get(name, UNLIMITED) for name, _ in rows}


QUEUE_EXISTS = Statement("SELECT 1 FROM mqlite_queues WHERE name = %(queue)s")


def queue_exists(connection: Connection, queue: str) -> bool:
    """Return whether the queue exists."""
    return QUEUE_EXISTS.one(connection, queue=queue) is not None


ATTEMPT_LIFE_MS = 30 * 60_000
"""The time during which a repeated attempt gets the same messages."""

# Returns only messages that still have the lease of that attempt; the others are settled or lost.
REPLAY_ATTEMPT = Statement(
    """
    SELECT """
    + M_COLUMNS
    + """
      FROM mqlite_receive_attempts AS a
     CROSS JOIN json_each(a.leases) AS lease
     CROSS JOIN mqlite_messages AS m ON m.id = json_extract(lease.value, '$[0]')
     WHERE a.queue = %(queue)s AND a.attempt_id = %(attempt_id)s AND a.expires_at > %(now)s
       AND m.lock_token = json_extract(lease.value, '$[1]')
       AND m.state = 'locked' AND m.locked_until > %(now)s
    """,
)

KNOWN_ATTEMPT = Statement(
    """
    SELECT deleted FROM mqlite_receive_attempts
     WHERE queue = %(queue)s AND attempt_id = %(attempt_id)s AND expires_at > %(now)s
    """,
)


def replay_attempt(
    connection: Connection, queue: str, attempt_id: str, *, now: int
) -> list[MessageRow] | None:
    """Return the messages that the attempt still holds, or None if there was no such attempt.

    An attempt that deleted its messages still holds all of them.
    """
    known = KNOWN_ATTEMPT.one(connection, queue=queue, attempt_id=attempt_id, now=now)
    if known is None:
        return None
    (deleted,) = known
    if deleted is not None:
        return [_decoded(row) for row in json.loads(deleted)]
    rows = REPLAY_ATTEMPT.all(connection, queue=queue, attempt_id=attempt_id, now=now)
    return in_claim_order(rows)


REMEMBER_ATTEMPT = Statement(
    """
    INSERT INTO mqlite_receive_attempts (queue, attempt_id, leases, deleted, expires_at)
    VALUES (%(queue)s, %(attempt_id)s, %(leases)s, %(deleted)s, %(expires_at)s)
    ON CONFLICT (queue, attempt_id) DO UPDATE
       SET leases = excluded.leases, deleted = excluded.deleted, expires_at = excluded.expires_at
    """,
)


def remember_attempt(
    connection: Connection, queue: str, attempt_id: str, rows: Sequence[MessageRow], *, now: int
) -> None:
    """Record the leases of the attempt, or the messages themselves if it deleted them."""
    has_deleted = rows[0].lock_token is None
    REMEMBER_ATTEMPT.run(
        connection,
        queue=queue,
        attempt_id=attempt_id,
        leases=json.dumps([] if has_deleted else [(row.id, row.lock_token) for row in rows]),
        deleted=json.dumps([_encoded(row) for row in rows]) if has_deleted else None,
        expires_at=now + ATTEMPT_LIFE_MS,
    )


def _encoded(row: MessageRow) -> MessageRow:
    return row._replace(body=b64encode(row.body).decode())  # type: ignore[arg-type]


def _decoded(row: Sequence[Any]) -> MessageRow:
    message = MessageRow._make(row)
    return message._replace(body=b64decode(message.body))


# Served by mqlite_attempts_expiry (expires_at).
PRUNE_ATTEMPTS = Statement(
    """
    DELETE FROM mqlite_receive_attempts
     WHERE (queue, attempt_id) IN (SELECT queue, attempt_id FROM mqlite_receive_attempts
                                    WHERE expires_at <= %(now)s
                                    LIMIT %(limit)s)
    """,
)
