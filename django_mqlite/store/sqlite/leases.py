"""End leases without a settle: those that expired, those of a dead worker, and single ones."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...types import Lease
from .base import Connection, Statement, encode_leases
from .settle import APPEND_ERROR


class Released(NamedTuple):
    """A message whose lease or time to live has ended, and its new state."""

    queue: str
    id: int
    message_id: str | None
    state: str
    delivery_count: int
    content_type: str | None
    subject: str | None


RELEASED_COLUMNS = ", ".join(Released._fields)
"""The columns returned by statements that end leases or messages."""


def released_rows(rows: Iterable[tuple[Any, ...]]) -> list[Released]:
    """Return rows of RELEASED_COLUMNS as `Released` values."""
    return list(map(Released._make, rows))


# The entry of `errors` for a delivery that ends without a settle.
APPEND_FAILED_DELIVERY = (
    APPEND_ERROR
    + """ json_object(
                   'class', %(error_class)s,
                   'message', %(reason)s,
                   'delivery', m.delivery_count,
                   'worker', m.locked_by,
                   'started_at', m.locked_at,
                   'failed_at', %(now)s))"""
)

NO_LEASE = "lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0"
"""The columns of a lease after its end."""

# Shared by every statement that ends a lease without a settle. The delivery was counted when it was
# claimed, so a message whose worker dies each time still reaches its limit. A statement that uses
# this text defines `at_limit` (true if no delivery is left) for the row `m`.
END_LEASE = (
    """
       SET state = CASE WHEN at_limit THEN 'dead_lettered' ELSE 'active' END,
           finished_at = CASE WHEN at_limit THEN %(now)s ELSE 0 END,
           dead_letter_reason = CASE WHEN at_limit THEN 'MaxDeliveryCountExceeded' END,
           errors = """
    + APPEND_FAILED_DELIVERY
    + """,
           """
    + NO_LEASE
)

# Served by mqlite_messages_locked (queue, locked_until) WHERE state = 'locked', one seek per queue.
# CROSS JOIN makes the queues the outer loop: otherwise the planner would read every lease.
RELEASE_EXPIRED_LEASES = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
    """
    + END_LEASE
    + """,
           dead_letter_description =
               CASE WHEN at_limit
                    THEN 'the lease of delivery ' || m.delivery_count || ' expired' END
      FROM (SELECT id AS target_id,
                   e.delivery_count >=
                       coalesce(nullif(e.max_delivery_count, 0), q.max_delivery_count) AS at_limit
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS e INDEXED BY mqlite_messages_locked ON e.queue = q.name
             WHERE e.state = 'locked' AND e.locked_until <= %(now)s
             LIMIT %(limit)s)
     WHERE m.id = target_id AND m.state = 'locked' AND m.locked_until <= %(now)s
    RETURNING """
    + RELEASED_COLUMNS,
)


def release_expired_leases(connection: Connection, *, now: int, limit: int) -> list[Released]:
    """Return at most `limit` expired leases to their queues, or dead-letter their messages."""
    rows = RELEASE_EXPIRED_LEASES.all(
        connection,
        now=now,
        limit=limit,
        error_class="django_mqlite.exceptions.LeaseExpired",
        reason="the worker neither settled nor renewed in time",
    )
    return released_rows(rows)


# A worker that is known to be dead cannot settle, so its leases end before they expire. Few
# messages are locked at the same time, so the worker's name needs no index.
RELEASE_WORKER = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
    """
    + END_LEASE
    + """,
           dead_letter_description =
               CASE WHEN at_limit
                    THEN 'the worker of delivery ' || m.delivery_count || ' died' END
      FROM (SELECT id AS target_id,
                   e.delivery_count >=
                       coalesce(nullif(e.max_delivery_count, 0), q.max_delivery_count) AS at_limit
              FROM mqlite_queues AS q
             CROSS JOIN mqlite_messages AS e INDEXED BY mqlite_messages_locked
                ON e.queue = q.name
             WHERE e.state = 'locked' AND e.locked_by = %(worker)s
             LIMIT %(limit)s)
     WHERE m.id = target_id AND m.state = 'locked' AND m.locked_by = %(worker)s
    RETURNING """
    + RELEASED_COLUMNS,
)


def release_worker(
    connection: Connection, worker: str, *, reason: str, now: int, limit: int
) -> list[Released]:
    """Return at most `limit` messages of `worker` to their queues or the dead letters."""
    rows = RELEASE_WORKER.all(
        connection,
        worker=worker,
        error_class="django_mqlite.exceptions.WorkerDied",
        reason=reason,
        now=now,
        limit=limit,
    )
    return released_rows(rows)


# A read of a worker's own leases. A settle that is not committed yet has ended no lease.
ENDED_LEASES = Statement(
    """
    SELECT json_extract(lease.value, '$[1]'), m.dead_letter_reason
      FROM json_each(%(leases)s) AS lease
      LEFT JOIN mqlite_messages AS m NOT INDEXED ON m.id = json_extract(lease.value, '$[0]')
     WHERE m.lock_token IS NOT json_extract(lease.value, '$[1]')
    """,
)


def ended_leases(connection: Connection, leases: Sequence[Lease]) -> dict[str, str | None]:
    """Return the tokens of those leases that have ended, with the dead-letter reason if any."""
    return dict(ENDED_LEASES.all(connection, leases=encode_leases(leases)))


HELD_TOKEN = Statement(
    "SELECT lock_token FROM mqlite_messages WHERE id = %(id)s AND state = 'locked'",
)


RELEASE_LEASE = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
    """
    + END_LEASE
    + """,
           dead_letter_description =
               CASE WHEN at_limit
                    THEN 'the lease of delivery ' || m.delivery_count
                         || ' was released manually' END
      FROM (SELECT id AS target_id,
                   delivery_count >=
                       coalesce(nullif(mqlite_messages.max_delivery_count, 0),
                                mqlite_queues.max_delivery_count) AS at_limit
              FROM mqlite_messages JOIN mqlite_queues ON name = queue
             WHERE id = %(id)s)
     WHERE m.id = target_id AND m.lock_token = %(lock_token)s AND m.state = 'locked'
    RETURNING """
    + RELEASED_COLUMNS,
)


def release_lease(
    connection: Connection, id: int, lock_token: str, *, reason: str, now: int
) -> list[Released]:
    """Return the message to its queue or the dead letters; [] if the lease has ended."""
    rows = RELEASE_LEASE.all(
        connection,
        id=id,
        lock_token=lock_token,
        error_class="django_mqlite.exceptions.LeaseReleased",
        reason=reason,
        now=now,
    )
    return released_rows(rows)


MAX_UNCOUNTED_INTERRUPTIONS = 10
"""Further interruptions of a message count as deliveries."""

INTERRUPTED_COLUMNS = RELEASED_COLUMNS.replace(
    "delivery_count", "delivery_count + (interruptions <= %(max_uncounted)s)"
)

# The claim counted the delivery, and this statement undoes that: the message is not to blame for a
# worker that has to stop. The limit is for a message that makes its worker stop each time. The
# statement returns the count as it was during the delivery.
INTERRUPT = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
    """
    + END_LEASE
    + """,
           dead_letter_description =
               CASE WHEN at_limit
                    THEN 'delivery ' || m.delivery_count || ' was interrupted, as were '
                         || m.interruptions || ' before' END,
           delivery_count = m.delivery_count - uncounted,
           interruptions = m.interruptions + 1
      FROM (SELECT e.id AS interrupted,
                   json_extract(lease.value, '$[1]') AS token,
                   json_extract(lease.value, '$[2]') AS lease_queue,
                   e.interruptions < %(max_uncounted)s AS uncounted,
                   e.interruptions >= %(max_uncounted)s AND e.delivery_count >=
                       coalesce(nullif(e.max_delivery_count, 0), q.max_delivery_count) AS at_limit
              FROM json_each(%(leases)s) AS lease
             CROSS JOIN mqlite_messages AS e NOT INDEXED
                ON e.id = json_extract(lease.value, '$[0]')
              JOIN mqlite_queues AS q ON q.name = e.queue)
     WHERE m.id = interrupted AND m.lock_token = token AND m.queue = lease_queue
       AND m.state = 'locked' AND m.locked_until > %(now)s
    RETURNING """
    + INTERRUPTED_COLUMNS,
)


def interrupt(
    connection: Connection, leases: Sequence[Lease], *, reason: str, now: int
) -> list[Released]:
    """Return the messages to their queues without counting the delivery; ignore lost leases.

    After MAX_UNCOUNTED_INTERRUPTIONS the delivery counts and can reach the delivery limit.
    """
    rows = INTERRUPT.all(
        connection,
        leases=encode_leases(leases),
        error_class="django_mqlite.exceptions.Interrupted",
        reason=reason,
        now=now,
        max_uncounted=MAX_UNCOUNTED_INTERRUPTIONS,
    )
    return released_rows(rows)
