"""A lease ends: complete, abandon, reject.

Every statement is fenced by the whole lease and by time: queue, id, token, `state = 'locked'`
and `locked_until > now`. A lease that ran out is over whether or not the reaper has been there.
Zero rows is an answer: the lease is lost.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..backoff import backoff_ms
from ..types import Lease
from .statement import Connection, Statement, fetch_all, fetch_one

MAX_ERRORS = 20
"""A message remembers its last 20 failed deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What became of an abandoned or rejected message."""

    state: str
    visible_at: int
    dead_letter_reason: str | None


def encode_leases(leases: Iterable[Lease]) -> str:
    """The JSON array of [id, token, queue] that the batch statements read with json_each."""
    return json.dumps([(lease.message_id, lease.lock_token, lease.queue) for lease in leases])


# A batch of one is how a single message is completed: one statement to prove, one plan to pin.
COMPLETE = Statement(
    "complete",
    """
    DELETE FROM mqlite_messages
     WHERE id IN (SELECT m.id
                    FROM json_each(%(leases)s) AS lease
                    JOIN mqlite_messages AS m ON m.id = json_extract(lease.value, '$[0]')
                    JOIN mqlite_queues AS q ON q.name = m.queue
                   WHERE m.lock_token = json_extract(lease.value, '$[1]')
                     AND m.queue = json_extract(lease.value, '$[2]')
                     AND m.state = 'locked' AND m.locked_until > %(now)s
                     AND q.retain_completed_ms = 0)
    RETURNING id
    """,
)

RETAIN = Statement(
    "retain",
    """
    UPDATE mqlite_messages
       SET state = 'completed', finished_at = %(now)s,
           lock_token = NULL, locked_until = 0
     WHERE id IN (SELECT m.id
                    FROM json_each(%(leases)s) AS lease
                    JOIN mqlite_messages AS m ON m.id = json_extract(lease.value, '$[0]')
                    JOIN mqlite_queues AS q ON q.name = m.queue
                   WHERE m.lock_token = json_extract(lease.value, '$[1]')
                     AND m.queue = json_extract(lease.value, '$[2]')
                     AND m.state = 'locked' AND m.locked_until > %(now)s
                     AND q.retain_completed_ms > 0)
    RETURNING id
    """,
)


def complete(connection: Connection, leases: Sequence[Lease], *, now: int) -> set[int]:
    """Delete the messages, or keep them where their queue says so; the ids it held for.

    The others' leases are lost; a stale one never stops the rest.
    """
    encoded = encode_leases(leases)
    done = {id for (id,) in fetch_all(connection, COMPLETE, leases=encoded, now=now)}
    if len(done) < len(leases):
        done |= {id for (id,) in fetch_all(connection, RETAIN, leases=encoded, now=now)}
    return done


BACKOFF = Statement(
    "backoff",
    """
    SELECT delivery_count, backoff_base_ms, backoff_max_ms
      FROM mqlite_messages JOIN mqlite_queues ON name = queue
     WHERE id = %(id)s
    """,
)

# The bound is the message's own, else the queue's. A message that stays a head keeps its place in
# its line while it waits.
ABANDON = Statement(
    "abandon",
    """
    UPDATE mqlite_messages AS m
       SET state = CASE WHEN m.delivery_count >= bound THEN 'dead_lettered'
                        WHEN %(delay)s > 0 THEN 'scheduled'
                        ELSE 'active' END,
           visible_at = %(now)s + CASE WHEN m.delivery_count >= bound THEN 0 ELSE %(delay)s END,
           finished_at = CASE WHEN m.delivery_count >= bound THEN %(now)s ELSE 0 END,
           dead_letter_reason =
               CASE WHEN m.delivery_count >= bound THEN 'MaxDeliveryCountExceeded' END,
           dead_letter_description =
               CASE WHEN m.delivery_count >= bound
                    THEN coalesce(json_extract(%(error)s, '$.message'),
                                  'abandoned ' || m.delivery_count || ' times') END,
           errors = CASE WHEN %(error)s IS NULL THEN m.errors ELSE json_insert(
               CASE WHEN json_array_length(m.errors) >= %(max_errors)s
                    THEN json_remove(m.errors, '$[0]')
                    ELSE coalesce(m.errors, '[]') END, '$[#]', json(%(error)s)) END,
           lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0
      FROM (SELECT id AS bounded,
                   coalesce(nullif(mqlite_messages.max_delivery_count, 0),
                            mqlite_queues.max_delivery_count) AS bound
              FROM mqlite_messages JOIN mqlite_queues ON name = queue
             WHERE id = %(id)s)
     WHERE m.id = bounded AND m.queue = %(queue)s AND m.lock_token = %(lock_token)s
       AND m.state = 'locked' AND m.locked_until > %(now)s
    RETURNING state, visible_at, dead_letter_reason
    """,
)


def abandon(
    connection: Connection,
    lease: Lease,
    *,
    now: int,
    delay: int | None,
    chance: float,
    error: str | None,
) -> Ending | None:
    """Give the message back: at once, after `delay` ms, or to the dead letters at its bound.

    `delay` None means the queue's backoff, spread by `chance` in [0, 1). `error` is a JSON object
    to remember. None if the lease is lost.
    """
    if delay is None:
        delay = _backoff(connection, lease, chance)
    row = fetch_one(
        connection,
        ABANDON,
        now=now,
        delay=delay,
        error=error,
        max_errors=MAX_ERRORS,
        **_fence(lease),
    )
    return _ending(row)


def _backoff(connection: Connection, lease: Lease, chance: float) -> int:
    row = fetch_one(connection, BACKOFF, id=lease.message_id)
    if row is None:
        return 0
    deliveries, base_ms, max_ms = row
    return backoff_ms(deliveries, base_ms=base_ms, max_ms=max_ms, chance=chance)


REJECT = Statement(
    "reject",
    """
    UPDATE mqlite_messages
       SET state = 'dead_lettered', finished_at = %(now)s,
           dead_letter_reason = %(reason)s, dead_letter_description = %(description)s,
           errors = CASE WHEN %(error)s IS NULL THEN errors ELSE json_insert(
               CASE WHEN json_array_length(errors) >= %(max_errors)s
                    THEN json_remove(errors, '$[0]')
                    ELSE coalesce(errors, '[]') END, '$[#]', json(%(error)s)) END,
           lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0
     WHERE id = %(id)s AND queue = %(queue)s AND lock_token = %(lock_token)s
       AND state = 'locked' AND locked_until > %(now)s
    RETURNING state, visible_at, dead_letter_reason
    """,
)


def reject(
    connection: Connection,
    lease: Lease,
    *,
    now: int,
    reason: str,
    description: str,
    error: str | None,
) -> Ending | None:
    """Dead-letter the message for `reason`; None if the lease is lost."""
    row = fetch_one(
        connection,
        REJECT,
        now=now,
        reason=reason,
        description=description,
        error=error,
        max_errors=MAX_ERRORS,
        **_fence(lease),
    )
    return _ending(row)


def _fence(lease: Lease) -> dict[str, object]:
    return {"id": lease.message_id, "queue": lease.queue, "lock_token": lease.lock_token}


def _ending(row: tuple[str, int, str | None] | None) -> Ending | None:
    if row is None:
        return None
    state, visible_at, reason = row
    return Ending(state=state, visible_at=visible_at, dead_letter_reason=reason)
