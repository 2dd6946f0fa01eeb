"""Operations on messages: cancel, make due now, discard, and activate a deferred message."""

import json
from collections.abc import Collection, Sequence

from .base import UNFINISHED, Connection, Statement
from .leases import APPEND_FAILED_DELIVERY, NO_LEASE, RELEASED_COLUMNS, Released

# A message that waits for a retry or after a redrive is scheduled too, but has been delivered
# before: it has a delivery count or `errors`, and cannot be cancelled.
CANCEL = Statement(
    """
    DELETE FROM mqlite_messages
     WHERE id = %(id)s AND state = 'scheduled' AND delivery_count = 0 AND errors IS NULL
       AND (%(queue)s IS NULL OR queue = %(queue)s)
    """,
)

RUN_NOW = Statement(
    """
    UPDATE mqlite_messages SET state = 'active', visible_at = %(now)s
     WHERE id = %(id)s AND state = 'scheduled'
    """,
)

# The lease of a locked message ends with the same statement, so its holder is fenced. The trigger
# mqlite_line_finish makes the next message of the line its head.
DISCARD = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
       SET state = 'dead_lettered', blocked = 0, finished_at = %(now)s,
           dead_letter_reason = 'Discarded',
           dead_letter_description =
               CASE state WHEN 'locked' THEN 'during delivery ' || delivery_count
                          ELSE 'while it was ' || state END,
           errors = CASE state WHEN 'locked' THEN """
    + APPEND_FAILED_DELIVERY
    + """ ELSE errors END,
           """
    + NO_LEASE
    + """
     WHERE id IN (SELECT value FROM json_each(%(ids)s)) AND """
    + UNFINISHED
    + """
       AND state IN (SELECT value FROM json_each(%(states)s))
       AND (%(queue)s IS NULL OR queue = %(queue)s)
       AND (%(last_error)s IS NULL OR m.error_class = %(last_error)s)
    RETURNING """
    + RELEASED_COLUMNS
    + ", dead_letter_description",
)


def discard(
    connection: Connection,
    ids: Sequence[int],
    states: Collection[str],
    *,
    now: int,
    last_error: str | None = None,
    queue: str | None = None,
) -> list[tuple[Released, str]]:
    """Dead-letter those of the messages that are unfinished and in one of `states`.

    `last_error` restricts them to those whose last error is of this class, and `queue` to those of
    this queue. Returns each with its description.
    """
    rows = DISCARD.all(
        connection,
        ids=json.dumps(list(ids)),
        states=json.dumps(list(states)),
        queue=queue,
        last_error=last_error,
        error_class="django_mqlite.exceptions.Discarded",
        reason="the message was discarded",
        now=now,
    )
    return [(Released._make(columns), description) for *columns, description in rows]


# Served by the partial index of each state. A state that is not asked for is not read. The plus
# sign keeps the planner from walking the ids.
UNFINISHED_IDS = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'locked' AND +id <= %(newest)s
       AND (%(state)s IS NULL OR %(state)s = 'locked')
     UNION ALL
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'active' AND +id <= %(newest)s
       AND (%(state)s IS NULL OR %(state)s = 'active')
     UNION ALL
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'scheduled' AND +id <= %(newest)s
       AND (%(state)s IS NULL OR %(state)s = 'scheduled')
     UNION ALL
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'deferred' AND +id <= %(newest)s
       AND (%(state)s IS NULL OR %(state)s = 'deferred')
     LIMIT %(limit)s
    """,
)


def unfinished_ids(
    connection: Connection, queue: str, state: str | None, *, newest: int, limit: int
) -> list[int]:
    """Return at most `limit` ids, up to `newest`, of the queue's unfinished messages.

    `state` None means any unfinished state.
    """
    rows = UNFINISHED_IDS.all(connection, queue=queue, state=state, newest=newest, limit=limit)
    return [id for (id,) in rows]


# Served by the same indexes. The class of the last error is read from each row.
UNFINISHED_IDS_OF_CLASS = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'locked' AND error_class = %(error_class)s
       AND (%(state)s IS NULL OR %(state)s = 'locked')
     UNION ALL
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'active' AND error_class = %(error_class)s
       AND (%(state)s IS NULL OR %(state)s = 'active')
     UNION ALL
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'scheduled' AND error_class = %(error_class)s
       AND (%(state)s IS NULL OR %(state)s = 'scheduled')
     UNION ALL
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'deferred' AND error_class = %(error_class)s
       AND (%(state)s IS NULL OR %(state)s = 'deferred')
    """,
)


def unfinished_ids_of_class(
    connection: Connection, queue: str, state: str | None, error_class: str
) -> list[int]:
    """Return the ids of the queue's unfinished messages whose last error is of this class."""
    rows = UNFINISHED_IDS_OF_CLASS.all(
        connection, queue=queue, state=state, error_class=error_class
    )
    return [id for (id,) in rows]


# The trigger mqlite_line_return puts the message behind earlier ones that were redriven meanwhile.
ACTIVATE = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET state = 'active', visible_at = %(now)s
     WHERE id IN (SELECT value FROM json_each(%(ids)s)) AND state = 'deferred'
       AND (%(queue)s IS NULL OR queue = %(queue)s)
    """,
)


def activate(
    connection: Connection, ids: Sequence[int], *, now: int, queue: str | None = None
) -> int:
    """Make those of the messages active that are deferred; return their number.

    `queue` restricts them to those of this queue.
    """
    return ACTIVATE.run(connection, ids=json.dumps(list(ids)), now=now, queue=queue)
