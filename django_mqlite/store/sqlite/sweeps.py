"""Activate due messages, end messages whose TTL has expired, and find the next sweep's time."""

import json
from collections.abc import Sequence

from .base import Connection, Statement
from .leases import RELEASED_COLUMNS, Released, released_rows

# Served by mqlite_messages_scheduled (queue, visible_at) WHERE state = 'scheduled', one seek per
# queue.
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


# Served by mqlite_messages_expiring (expires_at). Locked messages are skipped until their
# lease ends.
TTL_EXPIRED = Statement(
    """
    SELECT m.id, q.dead_letter_on_expire
      FROM mqlite_messages AS m
      JOIN mqlite_queues AS q ON q.name = m.queue
     WHERE m.expires_at > 0 AND m.expires_at <= %(now)s
       AND m.state IN ('active', 'deferred', 'scheduled')
     LIMIT %(limit)s
    """,
)


def find_ttl_expired(
    connection: Connection, *, now: int, limit: int
) -> tuple[list[int], list[int]]:
    """Return the ids of messages whose TTL has expired: those to dead-letter, those to delete."""
    rows = TTL_EXPIRED.all(connection, now=now, limit=limit)
    dead_letters = [id for id, dead_letter_on_expire in rows if dead_letter_on_expire]
    deletions = [id for id, dead_letter_on_expire in rows if not dead_letter_on_expire]
    return dead_letters, deletions


DEAD_LETTER_TTL_EXPIRED = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET state = 'dead_lettered', blocked = 0, finished_at = %(now)s,
           dead_letter_reason = 'TTLExpired',
           dead_letter_description = 'its time to live ended before it was handled'
     WHERE id IN (SELECT value FROM json_each(%(ids)s))
       AND expires_at > 0 AND expires_at <= %(now)s
       AND state IN ('active', 'deferred', 'scheduled')
    RETURNING """
    + RELEASED_COLUMNS,
)


def dead_letter_ttl_expired(
    connection: Connection, ids: Sequence[int], *, now: int
) -> list[Released]:
    """Dead-letter the messages, except those that were changed since they were selected."""
    rows = DEAD_LETTER_TTL_EXPIRED.all(connection, ids=json.dumps(list(ids)), now=now)
    return released_rows(rows)


DELETE_TTL_EXPIRED = Statement(
    """
    DELETE FROM mqlite_messages NOT INDEXED
     WHERE id IN (SELECT value FROM json_each(%(ids)s))
       AND expires_at > 0 AND expires_at <= %(now)s
       AND state IN ('active', 'deferred', 'scheduled')
    """,
)


# Returns the time of the next lease expiry, due schedule or TTL expiry; NULL for none. Two seeks
# per queue and one for the TTLs. A read, so an idle reaper takes no write lock. Messages whose
# queue is missing are ignored, because no sweep can change them.
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
