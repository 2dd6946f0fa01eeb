"""Does the backlog matter? Claim, complete and reap beside 1k, 100k and 1M rows of other states."""

import os

from django.db import connection, transaction

from benchmarks.measure import Figure, as_rows, figure, timed
from django_mqlite import clock
from django_mqlite.maintenance import activate_due, release_expired
from django_mqlite.models import Message, Queue

SIZES = (1_000, 100_000, 1_000_000)
ROUNDS = 300

# Every other state, and an active backlog behind the head: each a fifth of the rows.
FILL = """
INSERT INTO mqlite_messages (queue, state, visible_at, enqueued_at, expires_at, locked_until,
                             lock_token, finished_at, delivery_count, body)
SELECT 'flat',
       CASE value %% 5 WHEN 0 THEN 'active' WHEN 1 THEN 'scheduled' WHEN 2 THEN 'deferred'
                      WHEN 3 THEN 'dead_lettered' ELSE 'completed' END,
       CASE value %% 5 WHEN 1 THEN %(far)s ELSE %(now)s END, %(now)s, 0, 0, NULL,
       CASE WHEN value %% 5 > 2 THEN %(now)s ELSE 0 END, 0, zeroblob(256)
  FROM (WITH RECURSIVE n(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n LIMIT %(count)s)
        SELECT value FROM n)
"""
# Under a live lease of somebody else; few in practice, but the reaper must not walk them.
LOCK = """
UPDATE mqlite_messages SET state = 'locked', locked_until = %(far)s, lock_token = 'other' || id
 WHERE state = 'deferred' AND id %% 10 = 0
"""


def run() -> list[dict[str, object]]:
    Queue.objects.create_queue("flat", backoff_base=0, retain_completed=100_000_000)
    Queue.objects.create_queue("due", max_delivery_count=1_000_000)
    figures: list[Figure] = []
    filled = 0
    for size in SIZES:
        fill(size - filled)
        filled = size
        figures += measure(f"{size:>9,} rows")
    return as_rows(figures)


def fill(count: int) -> None:
    now = clock.now_ms()
    values = {"now": now, "far": now + 10**9, "count": count}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FILL, values)
        cursor.execute(LOCK, values)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    os.sync()  # what was filled in is not to be paid for by what is measured


def measure(label: str) -> list[Figure]:
    claims, completes, leases, schedules = [], [], [], []
    for _ in range(ROUNDS):
        spent, (message,) = timed(lambda: Message.objects.claim("flat"))
        claims.append(spent)
        spent, _ = timed(message.complete)
        completes.append(spent)
        Message.objects.enqueue("flat", b"")
        leases.append(reap_one())
        schedules.append(activate_one())
    return [
        figure(f"{label}: claim 1", claims),
        figure(f"{label}: complete 1", completes),
        figure(f"{label}: release 1 expired lease", leases),
        figure(f"{label}: activate 1 due schedule", schedules),
    ]


def reap_one() -> float:
    """One lease of a millisecond ends among all those that live."""
    Message.objects.enqueue("due", b"")
    (message,) = Message.objects.claim("due", lock_duration=0.001)
    while clock.now_ms() <= message.locked_until.timestamp() * 1000:
        pass
    spent, released = timed(lambda: release_expired("default", limit=1000))
    Message.objects.claim_and_delete("due", limit=10)
    return spent if released == 1 else fail(released)


def activate_one() -> float:
    new = Message.objects.enqueue("due", b"", delay=0.001)
    while clock.now_ms() < new.visible_at.timestamp() * 1000:
        pass
    spent, activated = timed(lambda: activate_due("default", limit=1000))
    Message.objects.claim_and_delete("due", limit=10)
    return spent if activated == 1 else fail(activated)


def fail(found: int) -> float:
    raise RuntimeError(f"one message was to be found, not {found}")
