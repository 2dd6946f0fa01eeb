"""A claim whose answer was lost can be asked for again: same messages, same tokens, no delivery."""

import json
from collections.abc import Sequence

from .rows import MessageRow, in_claim_order
from .statement import Connection, Statement, execute, fetch_all

ATTEMPT_LIFE_MS = 30 * 60_000
"""How long the answer to an attempt is remembered."""

# Only what is still under the very lease that was granted: the rest is settled or lost.
REPLAY_ATTEMPT = Statement(
    "replay_attempt",
    """
    SELECT m.id, m.queue, m.state, m.priority, m.line, m.blocked, m.visible_at, m.enqueued_at,
           m.expires_at, m.locked_at, m.locked_until, m.lock_token, m.locked_by, m.delivery_count,
           m.max_delivery_count, m.message_id, m.correlation_id, m.reply_to, m.group_id, m.subject,
           m.content_type, m.properties, m.body, m.errors, m.result, m.finished_at,
           m.dead_letter_reason, m.dead_letter_description
      FROM mqlite_receive_attempts AS a
     CROSS JOIN json_each(a.leases) AS lease
     CROSS JOIN mqlite_messages AS m ON m.id = json_extract(lease.value, '$[0]')
     WHERE a.queue = %(queue)s AND a.attempt_id = %(attempt_id)s AND a.expires_at > %(now)s
       AND m.lock_token = json_extract(lease.value, '$[1]')
       AND m.state = 'locked' AND m.locked_until > %(now)s
    """,
)

KNOWN_ATTEMPT = Statement(
    "known_attempt",
    """
    SELECT 1 FROM mqlite_receive_attempts
     WHERE queue = %(queue)s AND attempt_id = %(attempt_id)s AND expires_at > %(now)s
    """,
)


def replay_attempt(
    connection: Connection, queue: str, attempt_id: str, *, now: int
) -> list[MessageRow] | None:
    """What the attempt was given and still holds; None if it was given nothing, or is forgotten."""
    known = fetch_all(connection, KNOWN_ATTEMPT, queue=queue, attempt_id=attempt_id, now=now)
    if not known:
        return None
    rows = fetch_all(connection, REPLAY_ATTEMPT, queue=queue, attempt_id=attempt_id, now=now)
    return in_claim_order(rows)


REMEMBER_ATTEMPT = Statement(
    "remember_attempt",
    """
    INSERT INTO mqlite_receive_attempts (queue, attempt_id, leases, expires_at)
    VALUES (%(queue)s, %(attempt_id)s, %(leases)s, %(expires_at)s)
    ON CONFLICT (queue, attempt_id) DO UPDATE
       SET leases = excluded.leases, expires_at = excluded.expires_at
    """,
)


def remember_attempt(
    connection: Connection, queue: str, attempt_id: str, rows: Sequence[MessageRow], *, now: int
) -> None:
    """Note what the attempt has been given."""
    execute(
        connection,
        REMEMBER_ATTEMPT,
        queue=queue,
        attempt_id=attempt_id,
        leases=json.dumps([(row.id, row.lock_token) for row in rows]),
        expires_at=now + ATTEMPT_LIFE_MS,
    )


# Served by mqlite_attempts_expiry (expires_at).
PRUNE_ATTEMPTS = Statement(
    "prune_attempts",
    """
    DELETE FROM mqlite_receive_attempts
     WHERE (queue, attempt_id) IN (SELECT queue, attempt_id FROM mqlite_receive_attempts
                                    WHERE expires_at <= %(now)s
                                    LIMIT %(limit)s)
    """,
)


def prune_attempts(connection: Connection, *, now: int, limit: int) -> int:
    """Forget at most `limit` attempts that are over."""
    return execute(connection, PRUNE_ATTEMPTS, now=now, limit=limit)
