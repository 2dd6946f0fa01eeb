"""Dead letters go back to work, or for good."""

import json
from collections.abc import Sequence

from .statement import Connection, Statement, execute, fetch_all

# In place: the message keeps its id and with it its age and its place in its line, where
# mqlite_line_return lets it in. `errors` stays, so that the history is still to be read.
REDRIVE = Statement(
    "redrive",
    """
    UPDATE mqlite_messages
       SET state = 'active', blocked = line IS NOT NULL,
           delivery_count = 0, visible_at = %(now)s, expires_at = 0, finished_at = 0,
           dead_letter_reason = NULL, dead_letter_description = NULL
     WHERE id IN (SELECT m.id
                    FROM json_each(%(ids)s) AS wanted
                    JOIN mqlite_messages AS m ON m.id = wanted.value
                   WHERE m.state = 'dead_lettered')
    """,
)


def redrive(connection: Connection, ids: Sequence[int], *, now: int) -> int:
    """Make these dead letters active again, deliveries counted from 0; how many there were.

    The time to live does not come back: who redrives wants the message handled.
    """
    return execute(connection, REDRIVE, ids=json.dumps(list(ids)), now=now)


PURGE = Statement(
    "purge",
    """
    DELETE FROM mqlite_messages
     WHERE id IN (SELECT m.id
                    FROM json_each(%(ids)s) AS wanted
                    JOIN mqlite_messages AS m ON m.id = wanted.value
                   WHERE m.state = 'dead_lettered')
    """,
)


def purge(connection: Connection, ids: Sequence[int]) -> int:
    """Delete these dead letters; how many there were."""
    return execute(connection, PURGE, ids=json.dumps(list(ids)))


# Served by mqlite_messages_dead (queue, finished_at) WHERE state = 'dead_lettered'.
DEAD_LETTER_IDS = Statement(
    "dead_letter_ids",
    """
    SELECT id FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered' AND finished_at <= %(finished_before)s
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)


def dead_letter_ids(
    connection: Connection, queue: str, *, finished_before: int, limit: int
) -> list[int]:
    """The ids of at most `limit` dead letters that died no later than `finished_before`."""
    rows = fetch_all(
        connection,
        DEAD_LETTER_IDS,
        queue=queue,
        finished_before=finished_before,
        limit=limit,
    )
    return [id for (id,) in rows]
