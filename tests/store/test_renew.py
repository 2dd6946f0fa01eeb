"""A lease is kept."""

from datetime import timedelta

import pytest

from django_mqlite import LockLost, enqueue
from django_mqlite.models import Message
from tests.support.verbs import claim_one, enqueue_and_claim, reap, row_of

pytestmark = pytest.mark.django_db


def test_the_new_deadline_counts_from_now(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(20)

    message.renew()

    assert message.locked_until == clock.now + timedelta(seconds=30)
    assert Message.objects.get(pk=message.pk).locked_until == message.locked_until


def test_a_renewed_lease_settles_after_its_first_deadline(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(29)
    message.renew()
    clock.advance(29)

    assert reap() == []
    message.complete()


@pytest.mark.parametrize("lock_duration", [0.25, timedelta(hours=2)])
def test_the_length_may_be_told(clock, queue, lock_duration):
    message = enqueue_and_claim("jobs")
    clock.advance(29.9)

    message.renew(lock_duration)

    length = lock_duration if isinstance(lock_duration, timedelta) else timedelta(seconds=0.25)
    assert message.locked_until == clock.now + length


def test_it_never_shortens_a_lease(clock, queue):
    enqueue("jobs", None)
    message = claim_one("jobs", lock_duration=3_600)
    deadline = message.locked_until

    message.renew(1)

    assert message.locked_until == deadline
    assert Message.objects.get(pk=message.pk).locked_until == deadline


@pytest.mark.parametrize("late", [0, 0.001, 3_600])
def test_it_never_revives_an_expired_lease_even_where_nobody_claimed_since(clock, queue, late):
    message = enqueue_and_claim("jobs")
    clock.advance(30 + late)
    before = row_of(message)

    with pytest.raises(LockLost) as caught:
        message.renew()

    assert caught.value.verb == "renew"
    assert row_of(message) == before


def test_it_changes_nothing_but_the_deadline(clock, queue):
    message = enqueue_and_claim("jobs", {"a": 1})
    before = row_of(message)
    clock.advance(5)

    message.renew()

    after = row_of(message)
    assert {name for name in before if before[name] != after[name]} == {"locked_until"}


@pytest.mark.parametrize("lock_duration", [0, -1, float("nan"), 10**12, timedelta()])
def test_a_length_out_of_range_is_refused(clock, queue, lock_duration):
    message = enqueue_and_claim("jobs")

    with pytest.raises(ValueError, match="lock_duration"):
        message.renew(lock_duration)


def test_a_batch_reports_each_and_renews_those_that_hold(clock, queue, make_queue):
    make_queue("short", lock_duration=10)
    enqueue("short", None)
    for _ in range(4):
        enqueue("jobs", None)
    short = claim_one("short")
    kept, settled, abandoned, rejected = Message.objects.claim("jobs", limit=4)
    settled.complete()
    abandoned.abandon(delay=0)
    rejected.reject("R")
    never_claimed = enqueue("jobs", None)
    clock.advance(10)

    held = Message.objects.renew_many([short, kept, settled, abandoned, rejected, never_claimed])

    assert held == [False, True, False, False, False, False]
    assert kept.locked_until == clock.now + timedelta(seconds=30)
    assert short.locked_until == clock.now


def test_each_lease_of_a_batch_is_renewed_for_its_own_queues_length(clock, queue, make_queue):
    make_queue("long", lock_duration=300)
    messages = [enqueue_and_claim("jobs"), enqueue_and_claim("long")]
    clock.advance(5)

    assert Message.objects.renew_many(messages) == [True, True]
    lengths = [(message.locked_until - clock.now).total_seconds() for message in messages]
    assert lengths == [30, 300]


def test_a_stale_delivery_beside_the_live_one_of_the_same_message_is_told_apart(clock, queue):
    stale = enqueue_and_claim("jobs")
    clock.advance(30)
    reap()
    live = claim_one("jobs")
    over = stale.locked_until

    assert Message.objects.renew_many([stale, live]) == [False, True]
    assert stale.locked_until == over


def test_none_are_renewed_without_fuss(clock, queue):
    assert Message.objects.renew_many([]) == []
