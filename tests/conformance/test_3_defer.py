"""3.4 Defer, and claim deferred messages by id."""

from datetime import timedelta

import pytest
from django.db import transaction

from django_mqlite import LockLost, TransactionRefused, enqueue
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import (
    activate,
    claim_ids,
    enqueue_and_claim,
    reap,
    row_of,
    state_of,
)

pytestmark = [pytest.mark.django_db, pytest.mark.rule("3.4")]


def claim_deferred(queue, *messages, **options):
    ids = [message.pk for message in messages]
    return Message.objects.claim_deferred(str(queue), ids, **options)


def deferred(queue, data=None, **options):
    message = enqueue_and_claim(queue, data, **options)
    message.defer()
    return message


def test_deferred_message_is_not_claimed_or_swept(clock, queue):
    message = deferred("jobs")

    clock.advance(86_400)
    reap()
    activate()

    assert state_of(message) == "deferred"
    assert claim_ids("jobs") == []
    assert Message.objects.claimable() == set()


def test_deferred_message_is_claimed_by_id_with_a_new_lease(clock, queue):
    message = deferred("jobs", {"a": 1})
    clock.advance(60)

    (again,) = claim_deferred("jobs", message, worker="me", lock_duration=5)

    assert (again.pk, again.data, again.delivery_count) == (message.pk, {"a": 1}, 2)
    assert (again.state, again.locked_by) == ("locked", "me")
    assert again.locked_until == clock.now + timedelta(seconds=5)
    assert again.lock_token != message.lock_token
    with pytest.raises(LockLost):
        message.complete()
    assert claim_deferred("jobs", message) == []
    again.complete()
    assert state_of(message) == "gone"


def test_deferred_messages_are_claimed_in_claim_order(clock, queue):
    low, high, same = (deferred("jobs", priority=p) for p in (0, 5, 5))

    batch = claim_deferred("jobs", low, same, high, high)

    assert [message.pk for message in batch] == [high.pk, same.pk, low.pk]
    assert len({message.lock_token for message in batch}) == 3


def test_ids_of_other_messages_are_ignored(clock, queue, make_queue):
    make_queue("other")
    mine = deferred("jobs")
    elsewhere = deferred("other")
    locked = enqueue_and_claim("jobs")
    active = enqueue("jobs", None)
    before = [row_of(message) for message in (elsewhere, locked, active)]

    claimed = Message.objects.claim_deferred(
        "jobs", [elsewhere.pk, locked.pk, active.pk, mine.pk, 999_999, -1, 2**70]
    )

    assert [message.pk for message in claimed] == [mine.pk]
    assert [row_of(message) for message in (elsewhere, locked, active)] == before


def test_paused_or_expired_deferred_message_is_not_claimed(clock, queue):
    message = deferred("jobs", ttl=60)
    queue.pause()
    assert claim_deferred("jobs", message) == []

    queue.resume()
    clock.advance(60)
    assert claim_deferred("jobs", message) == []


def test_deferred_message_keeps_its_place_and_blocks_its_line(clock, group_queue):
    head = deferred("groups", group_id="g")
    behind = enqueue("groups", None, group_id="g")
    assert claim_ids("groups") == []

    (again,) = claim_deferred("groups", head)
    again.complete()

    assert claim_ids("groups") == [behind.pk]


def test_redriven_message_does_not_overtake_a_deferred_one(clock, group_queue):
    earlier = enqueue_and_claim("groups", group_id="g")
    earlier.reject("Broken")
    later = deferred("groups", group_id="g")

    DeadLetter.objects.redrive([earlier.pk])
    assert claim_ids("groups") == []

    (again,) = claim_deferred("groups", later)
    again.complete()
    assert claim_ids("groups") == [earlier.pk]


def test_claim_deferred_may_exceed_the_delivery_limit_once(clock, make_queue):
    make_queue("jobs", max_delivery_count=1)
    message = deferred("jobs")

    (again,) = claim_deferred("jobs", message)
    assert again.delivery_count == 2
    again.abandon(delay=0)

    assert state_of(message) == "dead_lettered"


def test_defer_joins_a_transaction_and_claim_deferred_refuses_it(clock, queue):
    message = enqueue_and_claim("jobs")

    with pytest.raises(RuntimeError), transaction.atomic():
        message.defer()
        raise RuntimeError
    assert state_of(message) == "locked"

    waiting = deferred("jobs")
    with pytest.raises(TransactionRefused), transaction.atomic():
        claim_deferred("jobs", waiting)
    assert state_of(waiting) == "deferred"


def test_claim_of_no_ids_returns_nothing(clock, queue):
    assert Message.objects.claim_deferred("jobs", []) == []
