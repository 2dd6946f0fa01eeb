"""The records of recurring schedules: how far each one is, and its last message.

A schedule is declared in the project's code. Its record is a row of mqlite_meta, so a schedule that
is removed leaves nothing, and a schedule needs no table.
"""

from .base import Connection, Statement

# ':' sorts directly before ';', so the range is the prefix 'schedule:'.
SCHEDULE_RECORDS = Statement(
    """
    SELECT substr(key, 10), value
      FROM mqlite_meta
     WHERE key > 'schedule:' AND key < 'schedule;'
     ORDER BY key
    """,
)

SCHEDULE_RECORD = Statement("SELECT value FROM mqlite_meta WHERE key = 'schedule:' || %(name)s")

ADD_SCHEDULE = Statement(
    """
    INSERT INTO mqlite_meta (key, value, updated_at)
    VALUES ('schedule:' || %(name)s, %(record)s, %(now)s)
    ON CONFLICT (key) DO NOTHING
    """,
)

# The guard on the old value makes each tick's message unique: of two transactions that have read
# the same record and enqueued the same tick, one changes no row here and is rolled back.
MOVE_SCHEDULE = Statement(
    """
    UPDATE mqlite_meta
       SET value = %(record)s, updated_at = %(now)s
     WHERE key = 'schedule:' || %(name)s AND value = %(before)s
    """,
)

DELETE_SCHEDULE = Statement("DELETE FROM mqlite_meta WHERE key = 'schedule:' || %(name)s")

# Finds the row by its id. After a restore from a backup, the record is as old as the messages.
UNFINISHED_STATE = Statement(
    """
    SELECT state FROM mqlite_messages NOT INDEXED
     WHERE id = %(id)s AND state IN ('active', 'locked', 'scheduled', 'deferred')
    """,
)


def replace_record(
    connection: Connection, name: str, *, before: str | None, record: str, now: int
) -> bool:
    """Store the record if the stored one is still `before`, None for no record."""
    if before is None:
        return ADD_SCHEDULE.run(connection, name=name, record=record, now=now) > 0
    return MOVE_SCHEDULE.run(connection, name=name, record=record, before=before, now=now) > 0
