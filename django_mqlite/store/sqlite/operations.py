"""A schedule is brought forward to now."""

from .base import Connection, Statement

# Parked by a backoff or by a redrive it has been at work already: that is no schedule to cancel.
CANCEL = Statement(
    """
    DELETE FROM mqlite_messages
     WHERE id = %(id)s AND state = 'scheduled' AND delivery_count = 0 AND errors IS NULL
    """,
)


def cancel(connection: Connection, id: int) -> bool:
    """Delete the message if it is scheduled and was never delivered; whether it was."""
    return CANCEL.run(connection, id=id) > 0


RUN_NOW = Statement(
    """
    UPDATE mqlite_messages SET state = 'active', visible_at = %(now)s
     WHERE id = %(id)s AND state = 'scheduled'
    """,
)


def run_now(connection: Connection, id: int, *, now: int) -> bool:
    """Make the message claimable if it is scheduled; whether it was."""
    return RUN_NOW.run(connection, id=id, now=now) > 0
