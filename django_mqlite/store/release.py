"""A lease is ended by somebody else than its holder or its time."""

from .reap import Released, released_rows
from .settle import MAX_ERRORS
from .statement import Connection, Statement, fetch_all, fetch_one

HELD_TOKEN = Statement(
    "held_token",
    "SELECT lock_token FROM mqlite_messages WHERE id = %(id)s AND state = 'locked'",
)


def held_token(connection: Connection, id: int) -> str | None:
    """The token of the lease that the message is under; None if it is under none."""
    row = fetch_one(connection, HELD_TOKEN, id=id)
    return row[0] if row else None


# The same rule as abandon and the reaper: the delivery was counted when it was claimed, and the
# last one that the bound allows was the last one.
RELEASE_LEASE = Statement(
    "release_lease",
    """
    UPDATE mqlite_messages AS m NOT INDEXED
       SET state = CASE WHEN m.delivery_count >= bound THEN 'dead_lettered' ELSE 'active' END,
           finished_at = CASE WHEN m.delivery_count >= bound THEN %(now)s ELSE 0 END,
           dead_letter_reason =
               CASE WHEN m.delivery_count >= bound THEN 'MaxDeliveryCountExceeded' END,
           dead_letter_description =
               CASE WHEN m.delivery_count >= bound
                    THEN 'the lease of delivery ' || m.delivery_count || ' was ended by hand' END,
           errors = json_insert(
               CASE WHEN json_array_length(m.errors) >= %(max_errors)s
                    THEN json_remove(m.errors, '$[0]')
                    ELSE coalesce(m.errors, '[]') END, '$[#]',
               json_object(
                   'class', 'django_mqlite.exceptions.LeaseReleased',
                   'message', %(reason)s,
                   'delivery', m.delivery_count,
                   'worker', m.locked_by,
                   'started_at', m.locked_at,
                   'failed_at', %(now)s)),
           lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0
      FROM (SELECT id AS bounded,
                   coalesce(nullif(mqlite_messages.max_delivery_count, 0),
                            mqlite_queues.max_delivery_count) AS bound
              FROM mqlite_messages JOIN mqlite_queues ON name = queue
             WHERE id = %(id)s)
     WHERE m.id = bounded AND m.lock_token = %(lock_token)s AND m.state = 'locked'
    RETURNING queue, id, state, delivery_count, content_type, subject
    """,
)


def release_lease(
    connection: Connection, id: int, lock_token: str, *, reason: str, now: int
) -> list[Released]:
    """Give the message back, or to the dead letters at its bound; [] if the lease is another."""
    rows = fetch_all(
        connection,
        RELEASE_LEASE,
        id=id,
        lock_token=lock_token,
        reason=reason,
        now=now,
        max_errors=MAX_ERRORS,
    )
    return released_rows(rows)
