"""Operations on single messages: cancel a scheduled message, or make it due now."""

from .base import Statement

# A message that waits for a retry or after a redrive is scheduled too, but has been delivered
# before: it has a delivery count or `errors`, and cannot be cancelled.
CANCEL = Statement(
    """
    DELETE FROM mqlite_messages
     WHERE id = %(id)s AND state = 'scheduled' AND delivery_count = 0 AND errors IS NULL
    """,
)

RUN_NOW = Statement(
    """
    UPDATE mqlite_messages SET state = 'active', visible_at = %(now)s
     WHERE id = %(id)s AND state = 'scheduled'
    """,
)
