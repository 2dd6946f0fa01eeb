"""Leases that end before their time without being settled: by hand, or with their worker."""

from collections.abc import Sequence

from ..types import Lease
from .leases import encode_leases
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


MAX_UNCOUNTED_INTERRUPTIONS = 10
"""Further interruptions of a message count as deliveries."""

# The claim has counted the delivery, and it is taken back here: a worker that has to stop is not
# the fault of the message. The limit is for a message that makes its worker stop each time. What is
# returned is the number that the delivery had.
INTERRUPT = Statement(
    "interrupt",
    """
    UPDATE mqlite_messages AS m NOT INDEXED
       SET state = CASE WHEN spent THEN 'dead_lettered' ELSE 'active' END,
           finished_at = CASE WHEN spent THEN %(now)s ELSE 0 END,
           dead_letter_reason = CASE WHEN spent THEN 'MaxDeliveryCountExceeded' END,
           dead_letter_description =
               CASE WHEN spent
                    THEN 'delivery ' || m.delivery_count || ' was interrupted, as were '
                         || m.interruptions || ' before' END,
           delivery_count = m.delivery_count - uncounted,
           interruptions = m.interruptions + 1,
           errors = json_insert(
               CASE WHEN json_array_length(m.errors) >= %(max_errors)s
                    THEN json_remove(m.errors, '$[0]')
                    ELSE coalesce(m.errors, '[]') END, '$[#]',
               json_object(
                   'class', 'django_mqlite.exceptions.Interrupted',
                   'message', %(reason)s,
                   'delivery', m.delivery_count,
                   'worker', m.locked_by,
                   'started_at', m.locked_at,
                   'failed_at', %(now)s)),
           lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0
      FROM (SELECT e.id AS interrupted,
                   json_extract(lease.value, '$[1]') AS token,
                   json_extract(lease.value, '$[2]') AS of_queue,
                   e.interruptions < %(max_uncounted)s AS uncounted,
                   e.interruptions >= %(max_uncounted)s AND e.delivery_count >=
                       coalesce(nullif(e.max_delivery_count, 0), q.max_delivery_count) AS spent
              FROM json_each(%(leases)s) AS lease
             CROSS JOIN mqlite_messages AS e NOT INDEXED
                ON e.id = json_extract(lease.value, '$[0]')
              JOIN mqlite_queues AS q ON q.name = e.queue)
     WHERE m.id = interrupted AND m.lock_token = token AND m.queue = of_queue
       AND m.state = 'locked' AND m.locked_until > %(now)s
    RETURNING queue, id, state, delivery_count + (interruptions <= %(max_uncounted)s),
              content_type, subject
    """,
)


def interrupt(
    connection: Connection, leases: Sequence[Lease], *, reason: str, now: int
) -> list[Released]:
    """Give these messages back without counting the delivery; a lost lease changes nothing.

    After MAX_UNCOUNTED_INTERRUPTIONS the delivery counts, and can be the last one.
    """
    rows = fetch_all(
        connection,
        INTERRUPT,
        leases=encode_leases(leases),
        reason=reason,
        now=now,
        max_errors=MAX_ERRORS,
        max_uncounted=MAX_UNCOUNTED_INTERRUPTIONS,
    )
    return released_rows(rows)
