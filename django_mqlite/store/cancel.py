"""A scheduled message is called off."""

from .statement import Connection, Statement, execute

# Parked by a backoff or by a redrive it has been at work already: that is no schedule to cancel.
CANCEL = Statement(
    "cancel",
    """
    DELETE FROM mqlite_messages
     WHERE id = %(id)s AND state = 'scheduled' AND delivery_count = 0 AND errors IS NULL
    """,
)


def cancel(connection: Connection, id: int) -> bool:
    """Delete the message if it is scheduled and was never delivered; whether it was."""
    return execute(connection, CANCEL, id=id) > 0
