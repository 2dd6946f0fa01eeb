"""Messages are taken, under a lease or for good."""

import json
from collections.abc import Sequence

from .rows import MessageRow, in_claim_order
from .statement import Connection, Statement, fetch_all, fetch_one

# Served by mqlite_messages_active (queue, blocked, priority DESC, id) WHERE state = 'active'.
# Only heads of lines are unblocked, so a batch holds at most one message of a group without asking,
# and a blocked backlog is not even seen.
#
# One statement for the whole batch: judged at one time, one commit. The secret is 128 fresh random
# bits; the id behind it makes the token of one message worthless for another of the same batch.
CLAIM = Statement(
    "claim",
    """
    UPDATE mqlite_messages
       SET state = 'locked',
           locked_at = %(now)s,
           locked_until = %(now)s + max(%(at_least)s, coalesce(
               %(lock_duration)s,
               (SELECT lock_duration_ms FROM mqlite_queues WHERE name = queue))),
           lock_token = %(secret)s || printf('%%016x', id),
           locked_by = %(worker)s,
           delivery_count = delivery_count + 1
     WHERE id IN (SELECT id FROM mqlite_messages
                   WHERE queue = %(queue)s AND state = 'active' AND blocked = 0
                     AND (expires_at = 0 OR expires_at > %(now)s)
                     AND (SELECT paused FROM mqlite_queues WHERE name = %(queue)s) = 0
                   ORDER BY priority DESC, id
                   LIMIT %(limit)s)
    RETURNING id, queue, state, priority, line, blocked, visible_at, enqueued_at, expires_at,
              locked_at, locked_until, lock_token, locked_by, delivery_count, max_delivery_count,
              message_id, correlation_id, reply_to, group_id, subject, content_type, properties,
              body, errors, result, finished_at, dead_letter_reason, dead_letter_description
    """,
)


def claim(  # noqa: PLR0913 - the parameters of the statement
    connection: Connection,
    queue: str,
    *,
    now: int,
    limit: int,
    secret: str,
    worker: str | None,
    lock_duration: int | None,
    at_least: int = 0,
) -> list[MessageRow]:
    """Take at most `limit` messages; each counts a delivery and is ours until `locked_until`.

    `lock_duration` in milliseconds, None for the queue's; `at_least` where that is too short.
    """
    rows = fetch_all(
        connection,
        CLAIM,
        queue=queue,
        now=now,
        limit=limit,
        secret=secret,
        worker=worker,
        lock_duration=lock_duration,
        at_least=at_least,
    )
    return in_claim_order(rows)


# The id is asked for, so the queue's order is not: but its line is. A deferred message that is not
# the head waits until its group is free.
CLAIM_DEFERRED = Statement(
    "claim_deferred",
    """
    UPDATE mqlite_messages
       SET state = 'locked',
           locked_at = %(now)s,
           locked_until = %(now)s + coalesce(
               %(lock_duration)s,
               (SELECT lock_duration_ms FROM mqlite_queues WHERE name = queue)),
           lock_token = %(secret)s || printf('%%016x', id),
           locked_by = %(worker)s,
           delivery_count = delivery_count + 1
     WHERE id IN (SELECT m.id
                    FROM json_each(%(ids)s) AS wanted
                   CROSS JOIN mqlite_messages AS m ON m.id = wanted.value
                    JOIN mqlite_queues AS q ON q.name = m.queue
                   WHERE m.queue = %(queue)s AND q.paused = 0
                     AND m.state = 'deferred' AND m.blocked = 0
                     AND (m.expires_at = 0 OR m.expires_at > %(now)s))
    RETURNING id, queue, state, priority, line, blocked, visible_at, enqueued_at, expires_at,
              locked_at, locked_until, lock_token, locked_by, delivery_count, max_delivery_count,
              message_id, correlation_id, reply_to, group_id, subject, content_type, properties,
              body, errors, result, finished_at, dead_letter_reason, dead_letter_description
    """,
)


def claim_deferred(
    connection: Connection,
    queue: str,
    ids: Sequence[int],
    *,
    now: int,
    secret: str,
    worker: str | None,
    lock_duration: int | None,
) -> list[MessageRow]:
    """Take those of `ids` that are deferred in the queue; each counts a delivery."""
    rows = fetch_all(
        connection,
        CLAIM_DEFERRED,
        queue=queue,
        ids=json.dumps(list(ids)),
        now=now,
        secret=secret,
        worker=worker,
        lock_duration=lock_duration,
    )
    return in_claim_order(rows)


# Served by mqlite_messages_active, like CLAIM.
CLAIM_AND_DELETE = Statement(
    "claim_and_delete",
    """
    DELETE FROM mqlite_messages
     WHERE id IN (SELECT id FROM mqlite_messages
                   WHERE queue = %(queue)s AND state = 'active' AND blocked = 0
                     AND (expires_at = 0 OR expires_at > %(now)s)
                     AND (SELECT paused FROM mqlite_queues WHERE name = %(queue)s) = 0
                   ORDER BY priority DESC, id
                   LIMIT %(limit)s)
    RETURNING id, queue, state, priority, line, blocked, visible_at, enqueued_at, expires_at,
              locked_at, locked_until, lock_token, locked_by, delivery_count + 1,
              max_delivery_count, message_id, correlation_id, reply_to, group_id, subject,
              content_type, properties, body, errors, result, finished_at, dead_letter_reason,
              dead_letter_description
    """,
)


def claim_and_delete(
    connection: Connection, queue: str, *, now: int, limit: int
) -> list[MessageRow]:
    """Take at most `limit` messages for good: no lease, no second delivery, whatever happens."""
    return in_claim_order(
        fetch_all(connection, CLAIM_AND_DELETE, queue=queue, now=now, limit=limit)
    )


# A read, so that an idle worker never takes the write lock.
CLAIMABLE = Statement(
    "claimable",
    """
    SELECT q.name
      FROM mqlite_queues AS q
     WHERE q.paused = 0
       AND EXISTS (SELECT 1 FROM mqlite_messages AS m
                    WHERE m.queue = q.name AND m.state = 'active' AND m.blocked = 0
                      AND (m.expires_at = 0 OR m.expires_at > %(now)s))
    """,
)


def claimable_queues(connection: Connection, *, now: int) -> set[str]:
    """The queues a claim would find something in."""
    return {name for (name,) in fetch_all(connection, CLAIMABLE, now=now)}


QUEUE_EXISTS = Statement("queue_exists", "SELECT 1 FROM mqlite_queues WHERE name = %(queue)s")


def queue_exists(connection: Connection, queue: str) -> bool:
    """Tells an empty queue from one that is not there."""
    return fetch_one(connection, QUEUE_EXISTS, queue=queue) is not None
