"""2.5 The cost of a verb does not depend on the other messages in the table.

The unit is a step of SQLite's virtual machine, which is the same on every machine.
"""

import pytest
from django.db import connection

from django_mqlite import enqueue
from django_mqlite.models import Message
from django_mqlite.types import Completion
from django_mqlite.verbs.sweeps import (
    activate_due,
    expire,
    next_event_in,
    prune_completed,
    release_expired_leases,
)
from tests.support.verbs import claim_one, enqueue_and_claim

pytestmark = [pytest.mark.django_db, pytest.mark.rule("2.5")]

FEW, MANY = 250, 5_000
YEAR_MS = 366 * 24 * 3_600_000

# %(count)s rows of each state in two queues, and a line with as many blocked messages in each.
FILL = """
    INSERT INTO mqlite_messages (
        queue, state, line, blocked, visible_at, enqueued_at, expires_at,
        locked_until, lock_token, locked_by, group_id, finished_at, kept_until, body)
    WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %(count)s),
         kind(state, line) AS (VALUES ('locked', NULL), ('deferred', NULL), ('scheduled', NULL),
                                      ('completed', NULL), ('dead_lettered', NULL), ('active', 'g'))
    SELECT queues.name, state, line, line IS NOT NULL,
           %(later)s, %(now)s,
           CASE WHEN state IN ('deferred', 'scheduled') THEN %(later)s ELSE 0 END,
           CASE state WHEN 'locked' THEN %(later)s ELSE 0 END,
           CASE state WHEN 'locked' THEN hex(randomblob(16)) END,
           CASE state WHEN 'locked' THEN 'worker' END, line,
           CASE WHEN state IN ('completed', 'dead_lettered') THEN %(now)s ELSE 0 END,
           CASE state WHEN 'completed' THEN %(later)s ELSE 0 END, x''
      FROM mqlite_queues AS queues CROSS JOIN kind CROSS JOIN n
"""


def fill(clock, count):
    with connection.cursor() as cursor:
        now = clock.now_ms()
        cursor.execute(FILL, {"count": count, "now": now, "later": now + YEAR_MS})


def steps_of(act):
    """Count the steps that SQLite's virtual machine takes."""
    steps = 0

    def count():
        nonlocal steps
        steps += 1
        return 0

    connection.connection.set_progress_handler(count, 1)
    try:
        act()
    finally:
        connection.connection.set_progress_handler(None, 1)
    return steps


def claim(clock):
    for _ in range(10):
        enqueue("jobs", None)
    return lambda: Message.objects.claim("jobs", limit=10)


def claim_and_delete(clock):
    enqueue("jobs", None)
    return lambda: Message.objects.claim_and_delete("jobs")


def claim_of_nothing(clock):
    return lambda: Message.objects.claim("jobs", limit=10)


def claimable(clock):
    return Message.objects.claimable


def enqueue_one(clock):
    return lambda: enqueue("jobs", None)


def enqueue_behind_others(clock):
    return lambda: enqueue("jobs", None, group_id="g")


def complete(clock):
    return enqueue_and_claim("jobs").complete


def complete_with_a_result(clock):
    message = enqueue_and_claim("jobs")
    done = Completion(result="null", retain_ms=YEAR_MS)
    return lambda: Message.objects.settle(message, done)


def prune(clock):
    message = enqueue_and_claim("jobs")
    Message.objects.settle(message, Completion(result="null", retain_ms=1))
    clock.advance(1)
    return lambda: prune_completed("default", limit=100)


def complete_a_head(clock):
    enqueue("jobs", None, group_id="own")
    enqueue("jobs", None, group_id="own")
    return claim_one("jobs").complete


def abandon(clock):
    message = enqueue_and_claim("jobs")
    return lambda: message.abandon(delay=60, error="x")


def reject(clock):
    message = enqueue_and_claim("jobs")
    return lambda: message.reject("R")


def renew(clock):
    return enqueue_and_claim("jobs").renew


def release(clock):
    enqueue_and_claim("jobs")
    clock.advance(30)
    return lambda: release_expired_leases("default", limit=100)


def activate(clock):
    enqueue("jobs", None, delay=1)
    clock.advance(1)
    return lambda: activate_due("default", limit=100)


def expire_one(clock):
    enqueue("jobs", None, ttl=1)
    clock.advance(1)
    return lambda: expire("default", limit=100)


def next_event(clock):
    return lambda: next_event_in("default")


VERBS = [
    claim,
    claim_and_delete,
    claim_of_nothing,
    claimable,
    enqueue_one,
    enqueue_behind_others,
    complete,
    complete_with_a_result,
    prune,
    complete_a_head,
    abandon,
    reject,
    renew,
    release,
    activate,
    expire_one,
    next_event,
]


def costs(clock):
    steps = {}
    for prepare in VERBS:
        steps[prepare.__name__] = steps_of(prepare(clock))
        Message.objects.filter(body__gt=b"", state="active").delete()
    return steps


def test_verb_costs_the_same_among_twenty_times_as_many_messages(clock, make_queue):
    for name in ("jobs", "more-jobs"):
        make_queue(name)
    fill(clock, FEW)
    for head in ("jobs", "more-jobs"):
        assert claim_one(head).group_id == "g"  # or the lines would not be blocked
    among_few = costs(clock)

    fill(clock, MANY - FEW)
    among_many = costs(clock)

    more = {
        name: (among_few[name], steps)
        for name, steps in among_many.items()
        if steps > 2 * among_few[name]
    }
    assert more == {}
    assert min(among_few.values()) > 10  # the counter works


def test_steps_of_a_table_scan_grow_with_the_table(clock, queue):
    def walk():
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM mqlite_messages WHERE reply_to = 'x'")

    fill(clock, 100)
    among_few = steps_of(walk)
    fill(clock, 1_900)

    assert steps_of(walk) > 2 * among_few
