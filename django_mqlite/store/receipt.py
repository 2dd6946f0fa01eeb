"""Settlement receipts: the same settle asked for twice is a success twice, and settles once."""

from collections.abc import Sequence

from ..types import Lease
from .leases import encode_leases
from .statement import Connection, Statement, execute, fetch_all

RECEIPT_LIFE_MS = 30 * 60_000
"""How long the identical request is still a success."""

WRITE_RECEIPTS = Statement(
    "write_receipts",
    """
    INSERT INTO mqlite_settlement_receipts
           (message, lock_token, queue, verb, arguments, expires_at)
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
           %(verb)s, %(arguments)s, %(expires_at)s
      FROM json_each(%(leases)s)
     WHERE true
    """,
)


def write_receipts(
    connection: Connection, leases: Sequence[Lease], verb: str, arguments: str, *, now: int
) -> None:
    """Remember that these leases were settled by `verb` with these effect-changing arguments."""
    execute(
        connection,
        WRITE_RECEIPTS,
        leases=encode_leases(leases),
        verb=verb,
        arguments=arguments,
        expires_at=now + RECEIPT_LIFE_MS,
    )


# Judged by the time of this statement, whether or not the sweep has been there.
REPLAYED = Statement(
    "replayed",
    """
    SELECT r.queue, r.message, r.lock_token
      FROM json_each(%(leases)s) AS lease
      JOIN mqlite_settlement_receipts AS r
        ON r.message = json_extract(lease.value, '$[0]')
       AND r.lock_token = json_extract(lease.value, '$[1]')
     WHERE r.queue = json_extract(lease.value, '$[2]')
       AND r.verb = %(verb)s AND r.arguments = %(arguments)s
       AND r.expires_at > %(now)s
    """,
)


def replayed(
    connection: Connection, leases: Sequence[Lease], verb: str, arguments: str, *, now: int
) -> frozenset[Lease]:
    """The leases that were settled by exactly this request before."""
    rows = fetch_all(
        connection,
        REPLAYED,
        leases=encode_leases(leases),
        verb=verb,
        arguments=arguments,
        now=now,
    )
    return frozenset(
        Lease(queue=queue, message_id=id, lock_token=token) for queue, id, token in rows
    )


# Served by mqlite_receipts_expiry (expires_at).
PRUNE_RECEIPTS = Statement(
    "prune_receipts",
    """
    DELETE FROM mqlite_settlement_receipts
     WHERE (message, lock_token) IN (SELECT message, lock_token
                                       FROM mqlite_settlement_receipts
                                      WHERE expires_at <= %(now)s
                                      LIMIT %(limit)s)
    """,
)


def prune_receipts(connection: Connection, *, now: int, limit: int) -> int:
    """Forget at most `limit` receipts that are over."""
    return execute(connection, PRUNE_RECEIPTS, now=now, limit=limit)
