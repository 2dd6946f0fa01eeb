"""Operations on single messages: release a lease, run a scheduled message now."""

import pytest

from django_mqlite import LockLost
from django_mqlite.models import Message
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, reap, row_of, state_of

pytestmark = pytest.mark.django_db


def seen(message):
    return Message.objects.get(pk=message.pk).lease_fingerprint


def release(message, **options):
    return Message.objects.release(message.pk, seen=options.pop("seen", seen(message)), **options)


def test_released_message_is_claimable_and_its_lease_is_lost(queue):
    held = enqueue_and_claim("jobs")

    fingerprint = seen(held)
    assert release(held, seen=fingerprint) is True
    assert release(held, seen=fingerprint) is False

    assert state_of(held) == "active"
    for settle in (held.complete, held.abandon, held.defer, held.renew):
        with pytest.raises(LockLost):
            settle()
    again = claim_one("jobs")
    assert (again.pk, again.delivery_count) == (held.pk, 2)


def test_other_lease_is_not_released(queue, clock):
    first = enqueue_and_claim("jobs")
    fingerprint = seen(first)
    assert first.lock_token not in fingerprint
    clock.advance(queue.lock_duration)
    reap()
    second = claim_one("jobs")

    assert release(first, seen=fingerprint) is False
    assert release(first, seen="") is False

    second.complete()


@pytest.mark.parametrize("make", [dead_letter, lambda queue: Message.objects.enqueue(queue, 1)])
def test_message_without_a_lease_is_not_released(queue, make):
    message = make("jobs")
    before = row_of(message)

    assert message.lease_fingerprint is None
    assert release(message, seen="x") is False
    assert Message.objects.release(10**9, seen="x") is False
    assert row_of(message) == before


def test_released_head_stays_the_head_of_its_group(group_queue):
    head = enqueue_and_claim("groups", group_id="a")
    Message.objects.enqueue("groups", 2, group_id="a")

    release(head)

    assert claim_one("groups").pk == head.pk


def backing_off(queue):
    message = enqueue_and_claim(queue)
    message.abandon(delay=3_600)
    return message


@pytest.mark.parametrize(
    ("make", "delivery"),
    [(lambda queue: Message.objects.enqueue(queue, 1, delay=3_600), 1), (backing_off, 2)],
    ids=["scheduled", "backing off"],
)
def test_scheduled_message_runs_now(queue, make, delivery):
    message = make("jobs")

    assert Message.objects.run_now(message.pk) is True
    assert Message.objects.run_now(message.pk) is False

    again = claim_one("jobs")
    assert (again.pk, again.delivery_count) == (message.pk, delivery)


def test_blocked_message_that_runs_now_waits_for_its_head(group_queue):
    enqueue_and_claim("groups", group_id="a")
    message = Message.objects.enqueue("groups", 2, group_id="a", delay=60)

    assert Message.objects.run_now(message.pk) is True

    assert Message.objects.claim("groups") == []
    assert message.explain().code == "behind_head"


@pytest.mark.parametrize(
    "make", [lambda queue: Message.objects.enqueue(queue, 1), enqueue_and_claim, dead_letter]
)
def test_message_that_is_not_scheduled_does_not_run_now(queue, make):
    message = make("jobs")
    before = row_of(message)

    assert Message.objects.run_now(message.pk) is False
    assert Message.objects.run_now(10**9) is False

    assert row_of(message) == before
