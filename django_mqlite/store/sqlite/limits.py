"""Read the limits of queues and their use, and take tokens from the bucket of a rate."""

import json
from collections.abc import Iterable
from typing import Any

from ...limits import Bucket, QueueLimits, Rate
from .base import Connection, Statement

# Live leases are counted, so an expired one makes room before the reaper has seen it. They are
# served by mqlite_messages_locked (queue, locked_until) WHERE state = 'locked', and not read at all
# in a queue without max_in_flight.
LIMIT_COLUMNS = """max_in_flight, rate_count, rate_period_ms, rate_tokens, rate_updated_at,
           CASE WHEN max_in_flight > 0
                THEN (SELECT count(*) FROM mqlite_messages
                       WHERE queue = name AND state = 'locked' AND locked_until > %(now)s)
                ELSE 0 END,
           CASE WHEN max_in_flight > 0
                THEN (SELECT min(locked_until) FROM mqlite_messages
                       WHERE queue = name AND state = 'locked' AND locked_until > %(now)s) END"""
"""The columns that queue_limits() reads, for a statement on mqlite_queues."""

LIMITS = Statement(
    """
    SELECT name, """
    + LIMIT_COLUMNS
    + """
      FROM mqlite_queues
     WHERE name IN (SELECT value FROM json_each(%(queues)s))
    """,
)


def limits_of(connection: Connection, queues: Iterable[str], *, now: int) -> dict[str, QueueLimits]:
    """Return the limits of those queues that exist."""
    rows = LIMITS.all(connection, queues=json.dumps(list(queues)), now=now)
    return {name: queue_limits(columns, now=now) for name, *columns in rows}


def queue_limits(columns: Iterable[Any], *, now: int) -> QueueLimits:
    """Return the values of LIMIT_COLUMNS as limits, with the bucket refilled to `now`."""
    max_in_flight, count, period_ms, tokens, updated_at, in_flight, first_expiry = columns
    bucket = None
    if count > 0 and period_ms > 0:  # other programs may have written anything
        rate = Rate(count=count, period_ms=period_ms)
        bucket = Bucket(rate=rate, level=tokens, updated_at=updated_at).at(now)
    return QueueLimits(
        max_in_flight=max_in_flight,
        in_flight=in_flight,
        first_expiry=first_expiry,
        bucket=bucket,
    )


WRITE_BUCKET = Statement(
    """
    UPDATE mqlite_queues SET rate_tokens = %(level)s, rate_updated_at = %(updated_at)s
     WHERE name = %(queue)s
    """,
)


def write_bucket(connection: Connection, queue: str, bucket: Bucket | None) -> None:
    """Store the level of the bucket; None means that the next one is full."""
    WRITE_BUCKET.run(
        connection,
        queue=queue,
        level=0 if bucket is None else bucket.level,
        updated_at=0 if bucket is None else bucket.updated_at,
    )
