"""A lease is kept."""

from collections.abc import Sequence

from ..types import Lease
from .leases import encode_leases
from .statement import Connection, Statement, fetch_all

# max(): a renewal never shortens a lease that was granted for longer.
RENEW = Statement(
    "renew",
    """
    UPDATE mqlite_messages
       SET locked_until = max(locked_until, %(now)s + max(%(at_least)s, coalesce(
               %(lock_duration)s,
               (SELECT lock_duration_ms FROM mqlite_queues WHERE name = queue))))
     WHERE id IN (SELECT m.id
                    FROM json_each(%(leases)s) AS lease
                   CROSS JOIN mqlite_messages AS m NOT INDEXED
                      ON m.id = json_extract(lease.value, '$[0]')
                   WHERE m.lock_token = json_extract(lease.value, '$[1]')
                     AND m.queue = json_extract(lease.value, '$[2]')
                     AND m.state = 'locked' AND m.locked_until > %(now)s)
    RETURNING queue, id, lock_token, locked_until
    """,
)


def renew(
    connection: Connection,
    leases: Sequence[Lease],
    *,
    now: int,
    lock_duration: int | None,
    at_least: int = 0,
) -> dict[Lease, int]:
    """Count the leases afresh from `now`; the new deadline of each. Who is missing is lost.

    An expired lease is never revived, even where nobody has claimed the message since.
    """
    rows = fetch_all(
        connection,
        RENEW,
        leases=encode_leases(leases),
        now=now,
        lock_duration=lock_duration,
        at_least=at_least,
    )
    return {
        Lease(queue=queue, message_id=id, lock_token=token): until
        for queue, id, token, until in rows
    }
