"""A schedule is brought forward to now."""

from .statement import Connection, Statement, execute

RUN_NOW = Statement(
    "run_now",
    """
    UPDATE mqlite_messages SET state = 'active', visible_at = %(now)s
     WHERE id = %(id)s AND state = 'scheduled'
    """,
)


def run_now(connection: Connection, id: int, *, now: int) -> bool:
    """Make the message claimable if it is scheduled; whether it was."""
    return execute(connection, RUN_NOW, id=id, now=now) > 0
