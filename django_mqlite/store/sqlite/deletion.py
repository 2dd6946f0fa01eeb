"""Find and delete messages that an operator no longer wants."""

import json
from collections.abc import Sequence

from .base import Connection, Statement

# Messages that are being handled are not among them, and neither are the results of completed ones.
# Served by the partial index of each state. The plus sign keeps the planner from walking the ids.
WAITING_IDS = Statement(
    """
    SELECT id
      FROM (SELECT id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'active' AND +id <= %(newest)s
             UNION ALL
            SELECT id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'scheduled' AND +id <= %(newest)s
             UNION ALL
            SELECT id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'deferred' AND +id <= %(newest)s
             UNION ALL
            SELECT id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'dead_lettered' AND +id <= %(newest)s)
     WHERE id NOT IN (SELECT value FROM json_each(%(kept)s))
     LIMIT %(limit)s
    """,
)


def waiting_ids(
    connection: Connection, queue: str, *, kept: Sequence[int], newest: int, limit: int
) -> list[int]:
    """Return at most `limit` ids, up to `newest`, of messages that wait and of dead letters.

    The ids in `kept` are left out.
    """
    rows = WAITING_IDS.all(
        connection, queue=queue, kept=json.dumps(list(kept)), newest=newest, limit=limit
    )
    return [id for (id,) in rows]


# The trigger mqlite_line_leave makes the next message of a line its head.
DELETE_WAITING = Statement(
    """
    DELETE FROM mqlite_messages NOT INDEXED
     WHERE id IN (SELECT value FROM json_each(%(ids)s))
       AND state IN ('active', 'scheduled', 'deferred', 'dead_lettered')
    """,
)


def delete_waiting(connection: Connection, ids: Sequence[int]) -> int:
    """Delete those of the messages that wait or are dead letters; return their number."""
    return DELETE_WAITING.run(connection, ids=json.dumps(list(ids)))


# Served by mqlite_messages_completed (queue, finished_at, id) WHERE state = 'completed'.
COMPLETED_BATCH = Statement(
    """
    SELECT finished_at, id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'completed' AND finished_at <= %(finished_before)s
       AND (finished_at, id) > (%(after_finished_at)s, %(after_id)s)
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)
