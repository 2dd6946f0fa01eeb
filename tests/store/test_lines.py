"""The triggers and constraints that give each line one head.

tests/model compares `blocked` with the model after random sequences of verbs.
"""

import pytest
from django.db import IntegrityError, connection

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message
from django_mqlite.verbs import sweeps
from tests.support.verbs import activate, claim_ids, claim_one, dead_letter, enqueue_and_claim, reap

pytestmark = pytest.mark.django_db


def enqueue_groups(*groups):
    """Enqueue a message of each group; return the ids."""
    return [enqueue("groups", None, group_id=group).pk for group in groups]


def heads():
    unfinished = Message.objects.exclude(state__in=["completed", "dead_lettered"])
    return list(unfinished.filter(blocked=False).order_by("pk").values_list("pk", flat=True))


def drain():
    """Complete everything that can be claimed; return the ids in their order."""
    ids = []
    while batch := Message.objects.claim("groups", limit=10):
        ids += [message.pk for message in batch]
        Message.objects.complete_many(batch)
    return ids


@pytest.mark.parametrize("pair", [("g", "G"), ("g", "g "), ("é", "e\u0301"), ("1", "01")])
def test_group_names_are_compared_exactly(clock, group_queue, pair):
    assert enqueue_groups(*pair) == claim_ids("groups")


ENDINGS = {
    "completed": lambda message, clock: message.complete(),
    "rejected": lambda message, clock: message.reject("R"),
    "abandoned at the limit": lambda message, clock: message.abandon(delay=60),
    "released at the limit": lambda message, clock: (clock.advance(30), reap()),
    "deleted": lambda message, clock: Message.objects.filter(pk=message.pk).delete(),
}


@pytest.mark.rule("6.6")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("retain", [0, 60], ids=["deleting", "retaining"])
def test_end_of_the_head_promotes_the_next_message(clock, make_queue, ending, retain):
    make_queue("groups", ordering_mode="group_fifo", max_delivery_count=1, retain_completed=retain)
    _, second, _ = enqueue_groups("a", "a", "a")

    ENDINGS[ending](claim_one("groups"), clock)

    assert heads() == [second]
    assert claim_ids("groups") == [second]


def test_deletion_of_a_blocked_message_keeps_the_head(clock, group_queue):
    first, second, third = enqueue_groups("a", "a", "a")

    Message.objects.filter(pk=second).delete()

    assert heads() == [first]
    assert drain() == [first, third]


@pytest.mark.rule("7.2")
@pytest.mark.parametrize("state", ["locked", "deferred"])
def test_redriven_message_waits_for_a_later_head_in_delivery(clock, group_queue, state):
    dead = dead_letter("groups", group_id="a")
    head = enqueue_and_claim("groups", None, group_id="a")
    enqueue_groups("a")
    if state == "deferred":
        head.defer()

    DeadLetter.objects.redrive([dead.pk])

    assert claim_ids("groups") == []
    assert heads() == [head.pk]
    Message.objects.filter(pk=head.pk).delete()
    assert claim_ids("groups") == [dead.pk]


def abandon_deferred(message, clock):
    message.defer()
    (again,) = Message.objects.claim_deferred("groups", [message.pk])
    again.abandon(delay=60)


def release_by_hand(message, clock):
    assert Message.objects.release(message.pk, seen=message.lease_fingerprint)


FAILURES = {
    "abandon later": lambda message, clock: message.abandon(delay=60),
    "abandon": lambda message, clock: message.abandon(delay=0),
    "abandon a deferred message": abandon_deferred,
    "lease expires": lambda message, clock: (clock.advance(3600), reap()),
    "release by hand": release_by_hand,
    "worker dies": lambda message, clock: sweeps.release_worker(
        "default", "w", reason="gone", limit=10
    ),
}


@pytest.mark.rule("7.2")
@pytest.mark.parametrize("failure", FAILURES)
def test_failed_delivery_returns_behind_earlier_redriven_messages(clock, group_queue, failure):
    first, second = enqueue_groups("a", "a")
    claim_one("groups").reject("R")
    claim_one("groups").reject("R")
    later, last = enqueue_groups("a", "a")
    head = claim_one("groups", worker="w")
    DeadLetter.objects.redrive([second, first])
    assert claim_ids("groups") == []

    FAILURES[failure](head, clock)

    assert heads() == [first]
    clock.advance(60)
    activate()
    assert drain() == [first, second, later, last]


@pytest.mark.rule("6.4")
def test_table_refuses_a_second_head(clock, group_queue):
    _, second = enqueue_groups("a", "a")

    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute("UPDATE mqlite_messages SET blocked = 0 WHERE id = %s", [second])


@pytest.mark.parametrize(
    "change", ["state = 'dead_lettered'", "state = 'completed'", "line = NULL", "blocked = 2"]
)
def test_table_refuses_a_blocked_message_outside_a_line(clock, group_queue, change):
    _, second = enqueue_groups("a", "a")

    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(f"UPDATE mqlite_messages SET {change} WHERE id = %s", [second])
