"""Does a backlog slow down claim, complete and reap? 1k to 1M active and 200k other messages."""

import os

from django.db import connection, transaction

from benchmarks.measure import Figure, as_rows, figure, timed
from django_mqlite import timing
from django_mqlite.models import Message, Queue
from django_mqlite.verbs.sweeps import activate_due, release_expired_leases

ACTIVE = (1_000, 100_000, 1_000_000)
OTHERS = 200_000
ROUNDS = 300

FILL = """
INSERT INTO mqlite_messages (queue, state, visible_at, enqueued_at, finished_at, body)
SELECT 'flat',
       CASE WHEN %(active)s THEN 'active'
            ELSE CASE value %% 4 WHEN 0 THEN 'scheduled' WHEN 1 THEN 'deferred'
                                 WHEN 2 THEN 'dead_lettered' ELSE 'completed' END END,
       CASE WHEN %(active)s OR value %% 4 > 0 THEN %(now)s ELSE %(far)s END, %(now)s,
       CASE WHEN %(active)s OR value %% 4 < 2 THEN 0 ELSE %(now)s END, zeroblob(256)
  FROM (WITH RECURSIVE n(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n LIMIT %(count)s)
        SELECT value FROM n)
"""
# Live leases of other workers; few in practice, but the reaper must not read them.
LOCK = """
UPDATE mqlite_messages SET state = 'locked', locked_until = %(far)s, lock_token = 'other' || id
 WHERE state = 'deferred' AND id %% 10 = 0
"""


def run() -> list[dict[str, object]]:
    Queue.objects.create_queue("flat", backoff_base=0, retain_completed=100_000_000)
    Queue.objects.create_queue("due", max_delivery_count=1_000_000)
    figures: list[Figure] = []
    fill(OTHERS, active=False)
    filled = 0
    for size in ACTIVE:
        fill(size - filled, active=True)
        filled = size
        figures += measure(f"{size:>9,} active")
    return as_rows(figures)


def fill(count: int, *, active: bool) -> None:
    now = timing.now_ms()
    values = {"now": now, "far": now + 10**9, "count": count, "active": active}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FILL, values)
        if not active:
            cursor.execute(LOCK, values)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    os.sync()  # keep the writes of the setup out of the measurement


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
    """Reap one expired lease among many live leases."""
    Message.objects.enqueue("due", b"")
    (message,) = Message.objects.claim("due", lock_duration=0.001)
    while timing.now_ms() <= message.locked_until.timestamp() * 1000:
        pass
    spent, released = timed(lambda: release_expired_leases("default", limit=1000))
    Message.objects.claim_and_delete("due", limit=10)
    return spent if released == 1 else fail(released)


def activate_one() -> float:
    new = Message.objects.enqueue("due", b"", delay=0.001)
    while timing.now_ms() < new.visible_at.timestamp() * 1000:
        pass
    spent, activated = timed(lambda: activate_due("default", limit=1000))
    Message.objects.claim_and_delete("due", limit=10)
    return spent if activated == 1 else fail(activated)


def fail(found: int) -> float:
    raise RuntimeError(f"found {found} messages, expected 1")
