"""What time does to messages: leases run out, schedules fall due."""

from datetime import timedelta

import pytest
from django.db import connection

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message
from django_mqlite.store.sqlite.sweeps import NEXT_EVENT
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    enqueue_and_claim,
    reap,
    row_of,
    state_of,
)

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("after", "released"), [(0, 0), (29.999, 0), (30, 1), (30.001, 1), (9_999, 1)]
)
def test_a_lease_is_released_at_its_deadline_and_not_before(clock, queue, after, released):
    message = enqueue_and_claim("jobs")
    clock.advance(after)

    assert len(reap()) == released

    assert state_of(message) == ("active" if released else "locked")


def test_a_released_message_is_claimable_at_once_and_its_delivery_stays_counted(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(30)

    (released,) = reap()

    assert (released.queue, released.id, released.state) == ("jobs", message.pk, "active")
    again = Message.objects.get(pk=message.pk)
    assert (again.lock_token, again.locked_by, again.locked_at, again.locked_until) == (None,) * 4
    assert (again.delivery_count, again.finished_at, again.dead_letter_reason) == (1, None, None)
    assert claim_one("jobs").delivery_count == 2


@pytest.mark.parametrize(("own", "queues", "bound"), [(None, 2, 2), (1, 5, 1), (3, 1, 3)])
def test_at_the_bound_a_released_message_is_a_dead_letter(clock, make_queue, own, queues, bound):
    make_queue("jobs", max_delivery_count=queues)
    enqueue("jobs", None, **({} if own is None else {"max_delivery_count": own}))
    for _ in range(bound):
        message = claim_one("jobs")
        clock.advance(30)
        (released,) = reap()

    assert released.state == "dead_lettered"
    dead = DeadLetter.objects.get(pk=message.pk)
    assert (dead.delivery_count, dead.finished_at) == (bound, clock.now)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert dead.dead_letter_description == f"the lease of delivery {bound} expired"
    assert len(dead.errors) == bound
    assert claim_ids("jobs") == []


def test_the_lost_delivery_is_remembered_as_an_error(clock, queue):
    enqueue("jobs", None)
    started = clock.now_ms()
    message = claim_one("jobs", worker="host:1")
    clock.advance(31)

    reap()

    (entry,) = Message.objects.get(pk=message.pk).errors
    assert entry["class"].endswith("LeaseExpired")
    assert "neither settled nor renewed" in entry["message"]
    assert (entry["delivery"], entry["worker"]) == (1, "host:1")
    assert (entry["started_at"], entry["failed_at"]) == (started, clock.now_ms())


def test_at_most_twenty_errors_are_remembered(clock, make_queue):
    make_queue("jobs", max_delivery_count=100)
    message = enqueue("jobs", None)
    for _ in range(25):
        claim_one("jobs")
        clock.advance(30)
        reap()

    deliveries = [entry["delivery"] for entry in Message.objects.get(pk=message.pk).errors]
    assert deliveries == list(range(6, 26))


def test_an_error_of_an_abandoned_delivery_stays_beside_it(clock, queue):
    enqueue_and_claim("jobs").abandon(delay=0, error="first")
    message = claim_one("jobs")
    clock.advance(30)

    reap()

    first, second = Message.objects.get(pk=message.pk).errors
    assert (first["message"], second["delivery"]) == ("first", 2)


def test_release_is_bounded_and_repeats_until_a_batch_comes_back_short(clock, queue, make_queue):
    make_queue("other")
    for name in ("jobs", "other"):
        for _ in range(5):
            enqueue(name, None)
        assert len(claim_ids(name)) == 5
    clock.advance(30)

    batches = [len(reap(limit=4)) for _ in range(4)]

    assert batches == [4, 4, 2, 0]
    assert Message.objects.filter(state="active").count() == 10


def test_release_touches_expired_leases_only(clock, queue):
    for _ in range(3):
        enqueue("jobs", None)
    live = claim_one("jobs", lock_duration=60)
    enqueue("jobs", None, delay=1)
    enqueue_and_claim("jobs").reject("R")
    clock.advance(31)
    expected = list(Message.objects.order_by("pk").values())

    assert reap() == []

    assert list(Message.objects.order_by("pk").values()) == expected
    live.complete()


def test_releasing_in_a_paused_queue_goes_on(clock, queue):
    message = enqueue_and_claim("jobs")
    queue.pause()
    clock.advance(30)

    assert len(reap()) == 1
    assert state_of(message) == "active"


@pytest.mark.parametrize(("after", "due"), [(0, 0), (9.999, 0), (10, 1), (11, 1)])
def test_a_scheduled_message_is_active_when_due_and_not_before(clock, queue, after, due):
    message = enqueue("jobs", None, delay=10)
    clock.advance(after)

    assert activate() == due

    assert state_of(message) == ("active" if due else "scheduled")


def test_activation_changes_nothing_but_the_state(clock, queue):
    message = enqueue("jobs", {"a": 1}, delay=10, ttl=60, priority=3)
    before = row_of(message)
    clock.advance(10)

    activate()

    after = row_of(message)
    assert {name for name in before if before[name] != after[name]} == {"state"}


def test_activation_is_bounded_and_repeats_until_a_batch_comes_back_short(clock, queue, make_queue):
    make_queue("other")
    for name in ("jobs", "other"):
        for _ in range(5):
            enqueue(name, None, delay=1)
    clock.advance(1)

    assert [activate(limit=4) for _ in range(4)] == [4, 4, 2, 0]


def test_a_message_scheduled_with_a_priority_overtakes_when_it_is_due(clock, queue):
    plain = enqueue("jobs", None).pk
    urgent = enqueue("jobs", None, delay=1, priority=1).pk
    clock.advance(1)

    activate()

    assert claim_ids("jobs") == [urgent, plain]


def test_the_next_event_is_the_first_deadline_of_any_queue(clock, queue, make_queue):
    make_queue("other")

    def in_seconds():
        at = NEXT_EVENT.value(connection)
        return None if at is None else (at - clock.now_ms()) / 1000

    assert in_seconds() is None
    enqueue("jobs", None)
    assert in_seconds() is None
    enqueue("other", None, delay=timedelta(hours=1))
    assert in_seconds() == 3_600
    message = claim_one("jobs")
    assert in_seconds() == 30
    enqueue("jobs", None, delay=5)
    assert in_seconds() == 5
    clock.advance(7)
    assert in_seconds() == -2
    activate()
    assert in_seconds() == 23
    message.complete()
    assert in_seconds() == 3_593
