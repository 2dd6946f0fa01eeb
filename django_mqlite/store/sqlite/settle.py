"""Complete, abandon, reject, defer and renew, with the receipts that make retries safe."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...timing import backoff_ms
from ...types import Completion, Lease, State
from .base import ERRORS, Connection, Statement, encode_leases

RECEIPT_LIFE_MS = 30 * 60_000
"""The time during which a repeated settlement succeeds."""

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
    """Record that `verb` settled these leases with these arguments."""
    WRITE_RECEIPTS.run(
        connection,
        leases=encode_leases(leases),
        verb=verb,
        arguments=arguments,
        expires_at=now + RECEIPT_LIFE_MS,
    )


# Expired receipts are ignored; the reaper deletes them later.
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
    """Return the leases that the same request settled before."""
    rows = REPLAYED.all(
        connection,
        leases=encode_leases(leases),
        verb=verb,
        arguments=arguments,
        now=now,
    )
    return frozenset(Lease(queue=queue, id=id, lock_token=token) for queue, id, token in rows)


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


MAX_ERRORS = 20
"""The number of failed deliveries that a message keeps; older ones are dropped."""

ERRORS_OR_NULL = f"CASE WHEN errors IS NOT NULL THEN {ERRORS} END"

APPEND_ERROR = f"""json_insert(
               CASE WHEN json_array_length({ERRORS}) >= {MAX_ERRORS}
                    THEN json_remove({ERRORS}, '$[0]')
                    ELSE {ERRORS} END, '$[#]',"""
"""The beginning of an expression that appends an error to the column `errors`."""


class SettleResult(NamedTuple):
    """A message's new state; `repeated` is True if the same request succeeded before."""

    state: str
    visible_at: int = 0
    dead_letter_reason: str | None = None
    repeated: bool = False


class HeldRow(NamedTuple):
    """The facts about a message under a lease that its signals and its next delivery need."""

    id: int
    queue: str
    lock_token: str
    line: str | None
    message_id: str | None
    subject: str | None
    content_type: str | None
    delivery_count: int
    locked_by: str | None
    locked_at: int
    in_flight_limited: int


HELD = Statement(
    """
    SELECT m.id, m.queue, m.lock_token, m.line, m.message_id, m.subject, m.content_type,
           m.delivery_count, m.locked_by, m.locked_at,
           (SELECT max_in_flight > 0 FROM mqlite_queues WHERE name = m.queue)
      FROM json_each(%(leases)s) AS lease
     CROSS JOIN mqlite_messages AS m NOT INDEXED ON m.id = json_extract(lease.value, '$[0]')
     WHERE m.lock_token = json_extract(lease.value, '$[1]')
       AND m.queue = json_extract(lease.value, '$[2]')
    """,
)


def held(connection: Connection, leases: Sequence[Lease]) -> dict[Lease, HeldRow]:
    """Return the facts about the messages of leases that have not been settled yet."""
    rows = [HeldRow._make(row) for row in HELD.all(connection, leases=encode_leases(leases))]
    return {Lease(queue=row.queue, id=row.id, lock_token=row.lock_token): row for row in rows}


# A single message is completed as a batch of one, so there is one statement and one query plan.
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


def complete(
    connection: Connection, completions: Mapping[Lease, Completion], *, now: int
) -> dict[Lease, SettleResult]:
    """Delete or retain the messages, and write receipts; lost leases are not in the result.

    A lost lease does not affect the others.
    """
    # The statements return ids, so a batch contains each message only once.
    by_message = {lease.id: lease for lease in completions}
    batch = list(by_message.values())
    others = {lease: c for lease, c in completions.items() if lease != by_message[lease.id]}
    encoded = _encoded(batch, completions)
    completed_ids = {id for (id,) in COMPLETE.all(connection, leases=encoded, now=now)}
    if len(completed_ids) < len(batch):
        completed_ids |= {id for (id,) in RETAIN.all(connection, leases=encoded, now=now)}
    completed = [lease for lease in batch if lease.id in completed_ids]
    if completed:
        write_receipts(connection, completed, "complete", "", now=now)
    missed = [lease for lease in batch if lease.id not in completed_ids]
    repeated = replayed(connection, missed, "complete", "", now=now) if missed else frozenset()
    return {
        **(complete(connection, others, now=now) if others else {}),
        **dict.fromkeys(repeated, SettleResult(State.COMPLETED, repeated=True)),
        **dict.fromkeys(completed, SettleResult(State.COMPLETED)),
    }


def _encoded(batch: Sequence[Lease], completions: Mapping[Lease, Completion]) -> str:
    """Return the JSON array of [id, token, queue, retention, result] for COMPLETE and RETAIN."""
    return json.dumps(
        [
            (
                lease.id,
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

# The delivery limit is the message's own, or else the queue's. The head of a line keeps its place
# while it waits.
ABANDON = Statement(
    """
    UPDATE mqlite_messages AS m NOT INDEXED
       SET state = CASE WHEN m.delivery_count >= delivery_limit THEN 'dead_lettered'
                        WHEN %(delay)s > 0 THEN 'scheduled'
                        ELSE 'active' END,
           visible_at = %(now)s
               + CASE WHEN m.delivery_count >= delivery_limit THEN 0 ELSE %(delay)s END,
           finished_at = CASE WHEN m.delivery_count >= delivery_limit THEN %(now)s ELSE 0 END,
           dead_letter_reason =
               CASE WHEN m.delivery_count >= delivery_limit THEN 'MaxDeliveryCountExceeded' END,
           dead_letter_description =
               CASE WHEN m.delivery_count >= delivery_limit
                    THEN coalesce(json_extract(%(error)s, '$.message'),
                                  'abandoned ' || m.delivery_count || ' times') END,
           errors = CASE WHEN %(error)s IS NULL THEN """
    + ERRORS_OR_NULL
    + """ ELSE """
    + APPEND_ERROR
    + """ json(%(error)s)) END,
           lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0
      FROM (SELECT id AS target_id,
                   coalesce(nullif(mqlite_messages.max_delivery_count, 0),
                            mqlite_queues.max_delivery_count) AS delivery_limit
              FROM mqlite_messages JOIN mqlite_queues ON name = queue
             WHERE id = %(id)s)
     WHERE m.id = target_id AND m.queue = %(queue)s AND m.lock_token = %(lock_token)s
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
) -> SettleResult | None:
    """Return the message to its queue after `delay` ms, or dead-letter it at its delivery limit.

    `delay` None means the queue's backoff, with jitter from `chance` in [0, 1). `error` is a JSON
    object to append to the message's errors. Returns None if the lease is lost.
    """
    row = ABANDON.one(
        connection,
        now=now,
        delay=_backoff(connection, lease, chance) if delay is None else delay,
        error=error,
        **_fence(lease),
    )
    return _result(connection, lease, row, "abandon", json.dumps(delay), now=now)


MAX_UNCOUNTED_RETRIES = 1_000
"""Further retries of a message without a time to live count as deliveries."""

# The claim counted the delivery, and this statement takes the count back. The limits are for a
# message that would be retried forever. `errors` is set to '[]' if there is none, because a message
# that has been delivered cannot be cancelled.
RETRY_UNCOUNTED = Statement(
    """
    UPDATE mqlite_messages
       SET state = 'scheduled', visible_at = %(now)s + %(delay)s,
           delivery_count = delivery_count - 1, uncounted_retries = uncounted_retries + 1,
           errors = """
    + ERRORS
    + """,
           lock_token = NULL, locked_by = NULL, locked_at = 0, locked_until = 0
     WHERE id = %(id)s AND queue = %(queue)s AND lock_token = %(lock_token)s
       AND state = 'locked' AND locked_until > %(now)s
       AND (expires_at > 0 OR uncounted_retries < %(max_uncounted)s)
    RETURNING state, visible_at, dead_letter_reason
    """,
)


def retry_uncounted(
    connection: Connection, lease: Lease, *, now: int, delay: int, error: str | None
) -> SettleResult | None:
    """Return the message to its queue after `delay` ms without counting the delivery.

    After MAX_UNCOUNTED_RETRIES the delivery counts, as in abandon(). Returns None if the lease is
    lost.
    """
    row = RETRY_UNCOUNTED.one(
        connection, now=now, delay=delay, max_uncounted=MAX_UNCOUNTED_RETRIES, **_fence(lease)
    )
    arguments = json.dumps([delay, "uncounted"])
    result = _result(connection, lease, row, "abandon", arguments, now=now)
    if result is not None:
        return result
    return abandon(connection, lease, now=now, delay=delay, chance=0, error=error)


def _backoff(connection: Connection, lease: Lease, chance: float) -> int:
    row = BACKOFF.one(connection, id=lease.id)
    if row is None:
        return 0
    deliveries, base_ms, max_ms = row
    return backoff_ms(deliveries, base_ms=base_ms, max_ms=max_ms, chance=chance)


REJECT = Statement(
    """
    UPDATE mqlite_messages AS m
       SET state = 'dead_lettered', finished_at = %(now)s,
           dead_letter_reason = %(reason)s, dead_letter_description = %(description)s,
           errors = CASE WHEN %(error)s IS NULL THEN """
    + ERRORS_OR_NULL
    + """ ELSE """
    + APPEND_ERROR
    + """ json(%(error)s)) END,
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
) -> SettleResult | None:
    """Dead-letter the message for `reason`; return None if the lease is lost."""
    row = REJECT.one(
        connection,
        now=now,
        reason=reason,
        description=description,
        error=error,
        **_fence(lease),
    )
    arguments = json.dumps([reason, description])
    return _result(connection, lease, row, "reject", arguments, now=now)


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


def defer(connection: Connection, lease: Lease, *, now: int) -> SettleResult | None:
    """Set the message aside until it is claimed by id; return None if the lease is lost."""
    row = DEFER.one(connection, now=now, **_fence(lease))
    return _result(connection, lease, row, "defer", "", now=now)


def _fence(lease: Lease) -> dict[str, object]:
    return {"id": lease.id, "queue": lease.queue, "lock_token": lease.lock_token}


def _result(
    connection: Connection,
    lease: Lease,
    row: tuple[str, int, str | None] | None,
    verb: str,
    arguments: str,
    *,
    now: int,
) -> SettleResult | None:
    if row is None:
        repeated = replayed(connection, [lease], verb, arguments, now=now)
        return SettleResult("", repeated=True) if repeated else None
    write_receipts(connection, [lease], verb, arguments, now=now)
    return SettleResult(*row)


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
    """Renew the leases from `now`; return their new deadlines. Lost leases are not in the result.

    An expired lease is never renewed, even if the message has not been claimed again.
    """
    rows = RENEW.all(
        connection,
        leases=encode_leases(leases),
        now=now,
        lock_duration=lock_duration,
        at_least=at_least,
    )
    return {Lease(queue=queue, id=id, lock_token=token): until for queue, id, token, until in rows}


SET_PROGRESS = Statement(
    """
    UPDATE mqlite_messages SET progress = %(progress)s
     WHERE id = %(id)s AND queue = %(queue)s AND lock_token = %(lock_token)s
       AND state = 'locked' AND locked_until > %(now)s
    """,
)


def set_progress(connection: Connection, lease: Lease, progress: str, *, now: int) -> bool:
    """Store the progress, a JSON object; return False if the lease is lost."""
    return SET_PROGRESS.run(connection, progress=progress, now=now, **_fence(lease)) > 0
