"""List and peek at messages without changing them."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...types import MAX_INTEGER, State
from .base import M_COLUMNS, MESSAGE_COLUMNS, Connection, MessageRow, Statement

# Sections in the order of a list: locked, active, scheduled, deferred, dead-lettered, completed.
# Each section is served by the partial index of its state. They are one statement, because most of
# them are empty and a page would have to query all of them. The sort keys are returned with each
# row, because SQLite does not guarantee the order of a UNION ALL.
IDS_BY_STATE = Statement(
    """
    SELECT section, name, first, second, third
      FROM (SELECT 0 AS section, q.name, m.locked_until AS first, 0 AS second, m.id AS third
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS m ON m.queue = q.name
             WHERE (%(queue)s IS NULL OR q.name = %(queue)s)
               AND m.state = 'locked'
               AND (%(state)s IS NULL OR %(state)s = 'locked')
               AND +m.id >= %(first)s AND +m.id < %(end)s
             ORDER BY q.name, m.locked_until, m.id
             LIMIT CASE WHEN 0 < %(section)s THEN 0 ELSE %(limit)s END
            OFFSET CASE WHEN 0 = %(section)s THEN %(position)s ELSE 0 END)
     UNION ALL
    SELECT section, name, first, second, third
      FROM (SELECT 1 AS section, q.name, m.blocked AS first, -m.priority AS second, m.id AS third
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS m ON m.queue = q.name
             WHERE (%(queue)s IS NULL OR q.name = %(queue)s)
               AND m.state = 'active'
               AND (%(state)s IS NULL OR %(state)s = 'active')
               AND +m.id >= %(first)s AND +m.id < %(end)s
             ORDER BY q.name, m.blocked, m.priority DESC, m.id
             LIMIT CASE WHEN 1 < %(section)s THEN 0 ELSE %(limit)s END
            OFFSET CASE WHEN 1 = %(section)s THEN %(position)s ELSE 0 END)
     UNION ALL
    SELECT section, name, first, second, third
      FROM (SELECT 2 AS section, q.name, m.visible_at AS first, 0 AS second, m.id AS third
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS m ON m.queue = q.name
             WHERE (%(queue)s IS NULL OR q.name = %(queue)s)
               AND m.state = 'scheduled'
               AND (%(state)s IS NULL OR %(state)s = 'scheduled')
               AND +m.id >= %(first)s AND +m.id < %(end)s
             ORDER BY q.name, m.visible_at, m.id
             LIMIT CASE WHEN 2 < %(section)s THEN 0 ELSE %(limit)s END
            OFFSET CASE WHEN 2 = %(section)s THEN %(position)s ELSE 0 END)
     UNION ALL
    SELECT section, name, first, second, third
      FROM (SELECT 3 AS section, q.name, 0 AS first, 0 AS second, m.id AS third
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS m ON m.queue = q.name
             WHERE (%(queue)s IS NULL OR q.name = %(queue)s)
               AND m.state = 'deferred'
               AND (%(state)s IS NULL OR %(state)s = 'deferred')
               AND +m.id >= %(first)s AND +m.id < %(end)s
             ORDER BY q.name, m.id
             LIMIT CASE WHEN 3 < %(section)s THEN 0 ELSE %(limit)s END
            OFFSET CASE WHEN 3 = %(section)s THEN %(position)s ELSE 0 END)
     UNION ALL
    SELECT section, name, first, second, third
      FROM (SELECT 4 AS section, q.name, -m.finished_at AS first, 0 AS second, -m.id AS third
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS m ON m.queue = q.name
             WHERE (%(queue)s IS NULL OR q.name = %(queue)s)
               AND m.state = 'dead_lettered'
               AND (%(state)s IS NULL OR %(state)s = 'dead_lettered')
               AND +m.id >= %(first)s AND +m.id < %(end)s
             ORDER BY q.name, m.finished_at DESC, m.id DESC
             LIMIT CASE WHEN 4 < %(section)s THEN 0 ELSE %(limit)s END
            OFFSET CASE WHEN 4 = %(section)s THEN %(position)s ELSE 0 END)
     UNION ALL
    SELECT section, name, first, second, third
      FROM (SELECT 5 AS section, q.name, -m.finished_at AS first, 0 AS second, -m.id AS third
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS m ON m.queue = q.name
             WHERE (%(queue)s IS NULL OR q.name = %(queue)s)
               AND m.state = 'completed'
               AND (%(state)s IS NULL OR %(state)s = 'completed')
               AND +m.id >= %(first)s AND +m.id < %(end)s
             ORDER BY q.name, m.finished_at DESC, m.id DESC
             LIMIT CASE WHEN 5 < %(section)s THEN 0 ELSE %(limit)s END
            OFFSET CASE WHEN 5 = %(section)s THEN %(position)s ELSE 0 END)
    """,
)

NEWEST_FIRST = (4, 5)
"""The sections of finished messages."""

# Served by mqlite_messages_died (finished_at, id), which covers all queues.
DEAD_LETTER_IDS = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE state = 'dead_lettered' AND finished_at >= 0
       AND +id >= %(first)s AND +id < %(end)s
     ORDER BY finished_at DESC, id DESC
     LIMIT %(limit)s OFFSET %(position)s
    """,
)

# Continues from an id, because an offset would read all rows that it skips.
NEWEST_IDS = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE id < min(%(position)s, %(end)s) AND id >= %(first)s
     ORDER BY id DESC
     LIMIT %(limit)s
    """,
)

# Served by mqlite_messages_group_id (group_id).
GROUP_IDS = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE group_id = %(group)s AND id < min(%(position)s, %(end)s) AND id >= %(first)s
       AND (%(queue)s IS NULL OR queue = %(queue)s)
       AND (%(state)s IS NULL OR state = %(state)s)
     ORDER BY id DESC
     LIMIT %(limit)s
    """,
)

# A sequence number, a message id or a correlation id. Each matches few rows, through its own index.
IDENTIFIER_IDS = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE (%(queue)s IS NULL OR queue = %(queue)s)
       AND (%(state)s IS NULL OR state = %(state)s)
       AND (%(group)s IS NULL OR group_id = %(group)s)
       AND +id >= %(first)s AND +id < %(end)s
       AND id IN (SELECT id FROM mqlite_messages WHERE id = %(number)s
                   UNION
                  SELECT id FROM mqlite_messages WHERE message_id = %(text)s
                   UNION
                  SELECT id FROM mqlite_messages WHERE correlation_id = %(text)s)
     ORDER BY id DESC
     LIMIT %(limit)s OFFSET %(position)s
    """,
)

# Served by mqlite_messages_subject (subject): the beginning of the subject, case-sensitive. The
# greatest code point ends the range.
SUBJECT_IDS = Statement(
    """
    SELECT id FROM mqlite_messages
     WHERE subject >= %(text)s AND subject < %(text)s || char(1114111)
       AND (%(queue)s IS NULL OR queue = %(queue)s)
       AND (%(state)s IS NULL OR state = %(state)s)
       AND (%(group)s IS NULL OR group_id = %(group)s)
       AND +id >= %(first)s AND +id < %(end)s
     ORDER BY subject, id
     LIMIT %(limit)s OFFSET %(position)s
    """,
)


class Criteria(NamedTuple):
    """Criteria for messages; None matches all. `text` is an id or the beginning of a subject.

    The ids are from `first` up to but not including `end`.
    """

    queue: str | None = None
    state: str | None = None
    group: str | None = None
    text: str | None = None
    first: int = -MAX_INTEGER - 1
    end: int = MAX_INTEGER


class Position(NamedTuple):
    """The position at which a page begins: a section, and an offset in it; -1 is its beginning."""

    section: int = 0
    offset: int = -1


class Section(NamedTuple):
    """A part of the list with its own order. With `by_id`, a position is an id, not an offset."""

    statement: Statement
    values: dict[str, Any]
    by_id: bool = False


def find(
    connection: Connection, criteria: Criteria, *, limit: int, position: Position
) -> tuple[list[int], Position | None]:
    """Return the ids of one page, and the position of the next page or None."""
    sections = _sections(criteria)
    if not sections:
        return _page_by_state(connection, criteria, limit=limit, position=position)
    page: list[int] = []
    for number in range(position.section, len(sections)):
        section = sections[number]
        offset = position.offset if number == position.section else -1
        left = limit - len(page)
        ids = _section_ids(connection, section, offset, limit=left + 1)
        page += ids[:left]
        if len(ids) > left:
            if left == 0:
                return page, Position(number)
            return page, Position(number, ids[left - 1] if section.by_id else max(offset, 0) + left)
    return page, None


def _section_ids(connection: Connection, section: Section, offset: int, *, limit: int) -> list[int]:
    beginning = MAX_INTEGER if section.by_id else 0
    values = section.values | {"limit": limit, "position": beginning if offset < 0 else offset}
    return [id for (id,) in section.statement.all(connection, **values)]


def _page_by_state(
    connection: Connection, criteria: Criteria, *, limit: int, position: Position
) -> tuple[list[int], Position | None]:
    """Return a page of one queue, one state or both; each state is a section."""
    offset = max(position.offset, 0)
    rows = IDS_BY_STATE.all(
        connection,
        queue=criteria.queue,
        state=criteria.state,
        first=criteria.first,
        end=criteria.end,
        section=position.section,
        position=offset,
        limit=limit + 1,
    )
    page = sorted(rows)[:limit]
    # Newest first is sorted by negated ids.
    ids = [int(-row[-1] if row[0] in NEWEST_FIRST else row[-1]) for row in page]
    if len(rows) <= limit:
        return ids, None
    section = page[-1][0]
    taken = sum(row[0] == section for row in page)
    return ids, Position(section, taken + (offset if section == position.section else 0))


def _sections(criteria: Criteria) -> list[Section]:
    """Return the sections of the list; [] for messages of a queue or a state."""
    if criteria.text:
        return _by_text(criteria, criteria.text)
    if criteria.group is not None:
        return [Section(GROUP_IDS, criteria._asdict(), by_id=True)]
    if criteria.queue is None and criteria.state is None:
        return [Section(NEWEST_IDS, {"first": criteria.first, "end": criteria.end}, by_id=True)]
    if criteria.queue is None and criteria.state == State.DEAD_LETTERED:
        return [Section(DEAD_LETTER_IDS, {"first": criteria.first, "end": criteria.end})]
    return []


def _by_text(criteria: Criteria, text: str) -> list[Section]:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
    values = criteria._asdict()
    return [Section(IDENTIFIER_IDS, values | {"number": number}), Section(SUBJECT_IDS, values)]


# True if the message in the middle, or the next one after it, was enqueued at the time or later.
IS_LATER = """coalesce((SELECT enqueued_at FROM mqlite_messages
                                    WHERE id >= (low + high) / 2
                                    ORDER BY id LIMIT 1) >= %(at)s, 1)"""

# Bisects the ids, which ascend with the times at which messages are enqueued, so that no index on
# the time is needed. Messages that were enqueued while the clock was set back may be on the wrong
# side.
FIRST_ID_SINCE = Statement(
    """
    WITH RECURSIVE bisected(low, high) AS (
        SELECT 0, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'mqlite_messages'), 0) + 1
         UNION ALL
        SELECT CASE WHEN """
    + IS_LATER
    + """ THEN low ELSE (low + high) / 2 + 1 END,
               CASE WHEN """
    + IS_LATER
    + """ THEN (low + high) / 2 ELSE high END
          FROM bisected
         WHERE low < high)
    SELECT low FROM bisected WHERE low >= high
    """,
)


def first_id_since(connection: Connection, at: int) -> int:
    """Return the lowest id of the messages that were enqueued at or after this time."""
    id: int = FIRST_ID_SINCE.value(connection, at=at)
    return id


# Reads the bodies of messages that were found by their ids.
CONTAINING = Statement(
    """
    SELECT m.id
      FROM json_each(%(ids)s) AS listed
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = listed.value
     WHERE instr(m.body, %(bytes)s) OR instr(m.errors, %(escaped)s)
        OR instr(m.dead_letter_description, %(text)s)
    """,
)

# length() of a BLOB does not read it.
TOTAL_BYTES = Statement(
    """
    SELECT coalesce(sum(length(m.body)), 0)
      FROM json_each(%(ids)s) AS listed
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = listed.value
    """,
)


def containing(connection: Connection, ids: Sequence[int], text: str) -> set[int]:
    """Return those of the messages whose body or errors contain the text, case-sensitive."""
    rows = CONTAINING.all(
        connection,
        ids=json.dumps(list(ids)),
        bytes=text.encode(),
        escaped=json.dumps(text)[1:-1],
        text=text,
    )
    return {id for (id,) in rows}


def total_bytes(connection: Connection, ids: Sequence[int]) -> int:
    """Return the number of bytes of the bodies of these messages."""
    total: int = TOTAL_BYTES.value(connection, ids=json.dumps(list(ids)))
    return total


# Served by mqlite_messages_active: claimable messages in claim order, then blocked ones.
PEEK = Statement(
    """
    SELECT """
    + MESSAGE_COLUMNS
    + """
      FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'active'
     ORDER BY blocked, priority DESC, id
     LIMIT %(limit)s
    """,
)


def peek(connection: Connection, queue: str, *, limit: int) -> list[MessageRow]:
    """Return the next messages in claim order, without a lease or a delivery."""
    return [MessageRow._make(row) for row in PEEK.all(connection, queue=queue, limit=limit)]


PEEK_DEAD_LETTERS = Statement(
    """
    SELECT """
    + MESSAGE_COLUMNS
    + """
      FROM mqlite_messages
     WHERE queue = %(queue)s AND state = 'dead_lettered'
     ORDER BY finished_at, id
     LIMIT %(limit)s
    """,
)


def peek_dead_letters(connection: Connection, queue: str, *, limit: int) -> list[MessageRow]:
    """Return the oldest dead letters of the queue."""
    rows = PEEK_DEAD_LETTERS.all(connection, queue=queue, limit=limit)
    return [MessageRow._make(row) for row in rows]


# Each partial index covers one state, and the ids are sorted. The plus signs keep SQLite from
# walking the primary key, which would read the rows of other queues.
BROWSE_SIZES = Statement(
    """
    SELECT m.id, length(m.body)
      FROM (SELECT +id AS id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'active' AND +id >= %(from_id)s
               AND (%(state)s IS NULL OR %(state)s = 'active')
             UNION ALL
            SELECT +id AS id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'locked' AND +id >= %(from_id)s
               AND (%(state)s IS NULL OR %(state)s = 'locked')
             UNION ALL
            SELECT +id AS id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'scheduled' AND +id >= %(from_id)s
               AND (%(state)s IS NULL OR %(state)s = 'scheduled')
             UNION ALL
            SELECT +id AS id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'deferred' AND +id >= %(from_id)s
               AND (%(state)s IS NULL OR %(state)s = 'deferred')
             UNION ALL
            SELECT +id AS id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'completed' AND +id >= %(from_id)s
               AND (%(state)s IS NULL OR %(state)s = 'completed')
             UNION ALL
            SELECT +id AS id FROM mqlite_messages
             WHERE queue = %(queue)s AND state = 'dead_lettered' AND +id >= %(from_id)s
               AND (%(state)s IS NULL OR %(state)s = 'dead_lettered')
             ORDER BY id
             LIMIT %(limit)s) AS page
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = page.id
     ORDER BY page.id
    """,
)

MESSAGES_BY_ID = Statement(
    """
    SELECT """
    + M_COLUMNS
    + """
      FROM json_each(%(ids)s) AS requested
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = requested.value
     WHERE m.queue = %(queue)s
    """,
)


def browse(
    connection: Connection,
    queue: str,
    *,
    from_id: int,
    state: str | None,
    limit: int,
    max_bytes: int,
) -> list[MessageRow]:
    """Return messages of the queue with ids from `from_id`, sorted by id.

    The message that brings the bodies over `max_bytes` is the last one.
    """
    sizes = BROWSE_SIZES.all(connection, queue=queue, from_id=from_id, state=state, limit=limit)
    ids: list[int] = []
    total = 0
    for id, size in sizes:
        if total > max_bytes:
            break
        ids.append(id)
        total += size
    rows = MESSAGES_BY_ID.all(connection, queue=queue, ids=json.dumps(ids))
    return sorted(map(MessageRow._make, rows))


# Served by the primary key.
ARRIVALS = Statement(
    """
    SELECT """
    + MESSAGE_COLUMNS
    + """
      FROM mqlite_messages
     WHERE id > %(after)s AND (%(queue)s IS NULL OR queue = %(queue)s)
     ORDER BY id
     LIMIT %(limit)s
    """,
)


def arrivals(
    connection: Connection, queue: str | None, *, after: int, limit: int
) -> list[MessageRow]:
    """Return the first messages with an id above `after`, of one queue or of all."""
    rows = ARRIVALS.all(connection, queue=queue, after=after, limit=limit)
    return [MessageRow._make(row) for row in rows]
