"""Complete, abandon, reject, defer and renew, with the receipts that make a repetition safe."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...timing import backoff_ms
from ...types import Completion, Lease
from .base import Connection, Statement, encode_leases

RECEIPT_LIFE_MS = 30 * 60_000
"""How long the identical request is still a success."""

WRITE_RECEIPTS = Statement(
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
    WRITE_RECEIPTS.run(
        connection,
        leases=encode_leases(leases),
        verb=verb,
        arguments=arguments,
        expires_at=now + RECEIPT_LIFE_MS,
    )


# Judged by the time of this statement, whether or not the sweep has been there.
REPLAYED = Statement(
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
    rows = REPLAYED.all(
        connection,
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
    return PRUNE_RECEIPTS.run(connection, now=now, limit=limit)


MAX_ERRORS = 20
"""A message remembers its last 20 failed deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The result of a settle other than complete; empty for a repeated request."""

    state: str = ""
    visible_at: int = 0
    dead_letter_reason: str | None = None
    replayed: bool = False


# A single message is completed as a batch of one, so there is one statement to prove and one plan.
# A completion may set how long its message is kept; otherwise the queue decides. The token, state
# and deadline are checked on the row that is deleted, not only in the sub-select: with several
# writers only that row is checked again after a wait.
COMPLETE = Statement(
    """
    DELETE FROM mqlite_messages NOT INDEXED
     WHERE (id, lock_token) IN (
               SELECT m.id, json_extract(lease.value, '$[1]')
                 FROM json_each(%(leases)s) AS lease
                CROSS JOIN mqlite_messages AS m NOT INDEXED
                   ON m.id = json_extract(lease.value, '$[0]')
                 JOIN mqlite_queues AS q ON q.name = m.queue
                WHERE m.queue = json_extract(lease.value, '$[2]')
                  AND coalesce(json_extract(lease.value, '$[3]'), q.retain_completed_ms) = 0)
       AND state = 'locked' AND locked_until > %(now)s
    RETURNING id
    """,
)

RETAIN = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET state = 'completed', finished_at = %(now)s, kept_until = %(now)s + done.retain,
           result = done.result, lock_token = NULL, locked_until = 0
      FROM (SELECT m.id AS completed, json_extract(lease.value, '$[1]') AS token,
                   coalesce(json_extract(lease.value, '$[3]'), q.retain_completed_ms) AS retain,
                   json_extract(lease.value, '$[4]') AS result
              FROM json_each(%(leases)s) AS lease
             CROSS JOIN mqlite_messages AS m NOT INDEXED
                ON m.id = json_extract(lease.value, '$[0]')
              JOIN mqlite_queues AS q ON q.name = m.queue
             WHERE m.queue = json_extract(lease.value, '$[2]')) AS done
     WHERE id = done.completed AND lock_token = done.token
       AND state = 'locked' AND locked_until > %(now)s AND done.retain > 0
    RETURNING id
    """,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The leases that were completed now, and those that had been by the same request."""

    now: frozenset[Lease] = frozenset()
    before: frozenset[Lease] = frozenset()


def complete(
    connection: Connection, completions: Mapping[Lease, Completion], *, now: int
) -> Completed:
    """Delete the messages, or keep them where they or their queue say so, and write their receipts.

    Leases in neither set are lost; a stale one never stops the rest.
    """
    # Rows come back by id, so two leases of one message must not be asked about in one breath.
    by_message = {lease.message_id: lease for lease in completions}
    batch = list(by_message.values())
    rivals = {
        lease: completion
        for lease, completion in completions.items()
        if lease != by_message[lease.message_id]
    }
    encoded = _encoded(batch, completions)
    done = {id for (id,) in COMPLETE.all(connection, leases=encoded, now=now)}
    if len(done) < len(batch):
        done |= {id for (id,) in RETAIN.all(connection, leases=encoded, now=now)}
    settled = [lease for lease in batch if lease.message_id in done]
    if settled:
        write_receipts(connection, settled, "complete", "", now=now)
    missed = [lease for lease in batch if lease.message_id not in done]
    before = replayed(connection, missed, "complete", "", now=now) if missed else frozenset()
    rest = complete(connection, rivals, now=now) if rivals else Completed()
    return Completed(now=rest.now.union(settled), before=rest.before | before)


def _encoded(batch: Sequence[Lease], completions: Mapping[Lease, Completion]) -> str:
    """The JSON array of [id, token, queue, retention, result] that the two statements read."""
    return json.dumps(
        [
            (
                lease.message_id,
                lease.lock_token,
                lease.queue,
                completions[lease].retain_ms,
                completions[lease].result,
            )
            for lease in batch
        ]
    )


BACKOFF = Statement(
    """
    SELECT delivery_count, backoff_base_ms, backoff_max_ms
      FROM mqlite_messages JOIN mqlite_queues ON name = queue
     WHERE id = %(id)s
    """,
)

# The bound is the message's own, else the queue's. A message that stays a head keeps its place in
# its line while it waits.
ABANDON = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
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
    row = ABANDON.one(
        connection,
        now=now,
        delay=_backoff(connection, lease, chance) if delay is None else delay,
        error=error,
        max_errors=MAX_ERRORS,
        **_fence(lease),
    )
    return _ending(connection, lease, row, "abandon", json.dumps(delay), now=now)


def _backoff(connection: Connection, lease: Lease, chance: float) -> int:
    row = BACKOFF.one(connection, id=lease.message_id)
    if row is None:
        return 0
    deliveries, base_ms, max_ms = row
    return backoff_ms(deliveries, base_ms=base_ms, max_ms=max_ms, chance=chance)


REJECT = Statement(
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
    row = REJECT.one(
        connection,
        now=now,
        reason=reason,
        description=description,
        error=error,
        max_errors=MAX_ERRORS,
        **_fence(lease),
    )
    arguments = json.dumps([reason, description])
    return _ending(connection, lease, row, "reject", arguments, now=now)


DEFER = Statement(
    """
    UPDATE mqlite_messages
       SET state = 'deferred',
           lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0
     WHERE id = %(id)s AND queue = %(queue)s AND lock_token = %(lock_token)s
       AND state = 'locked' AND locked_until > %(now)s
    RETURNING state, visible_at, dead_letter_reason
    """,
)


def defer(connection: Connection, lease: Lease, *, now: int) -> Ending | None:
    """Set the message aside until it is claimed by its id; None if the lease is lost."""
    row = DEFER.one(connection, now=now, **_fence(lease))
    return _ending(connection, lease, row, "defer", "", now=now)


def _fence(lease: Lease) -> dict[str, object]:
    return {"id": lease.message_id, "queue": lease.queue, "lock_token": lease.lock_token}


def _ending(
    connection: Connection,
    lease: Lease,
    row: tuple[str, int, str | None] | None,
    verb: str,
    arguments: str,
    *,
    now: int,
) -> Ending | None:
    if row is None:
        before = replayed(connection, [lease], verb, arguments, now=now)
        return Ending(replayed=True) if before else None
    write_receipts(connection, [lease], verb, arguments, now=now)
    state, visible_at, reason = row
    return Ending(state=state, visible_at=visible_at, dead_letter_reason=reason)


# max(): a renewal never shortens a lease that was granted for longer.
RENEW = Statement(
    """
    UPDATE mqlite_messages NOT INDEXED
       SET locked_until = max(locked_until, %(now)s + max(%(at_least)s, coalesce(
               %(lock_duration)s,
               (SELECT lock_duration_ms FROM mqlite_queues WHERE name = queue))))
     WHERE (id, lock_token, queue) IN (
               SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'),
                      json_extract(value, '$[2]')
                 FROM json_each(%(leases)s))
       AND state = 'locked' AND locked_until > %(now)s
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
    rows = RENEW.all(
        connection,
        leases=encode_leases(leases),
        now=now,
        lock_duration=lock_duration,
        at_least=at_least,
    )
    return {
        Lease(queue=queue, message_id=id, lock_token=token): until
        for queue, id, token, until in rows
    }
