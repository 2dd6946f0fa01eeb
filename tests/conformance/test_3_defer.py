"""3.4 Set aside, and fetched by id."""

from datetime import timedelta

import pytest
from django.db import transaction

from django_mqlite import LockLost, QueueNotFound, TransactionRefused, enqueue
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    enqueue_and_claim,
    reap,
    row_of,
    state_of,
)

pytestmark = [pytest.mark.django_db, pytest.mark.rule("3.4")]


def fetch(queue, *messages, **options):
    return Message.objects.claim_deferred(str(queue), [m.pk for m in messages], **options)


def deferred(queue, data=None, **options):
    message = enqueue_and_claim(queue, data, **options)
    message.defer()
    return message


def test_a_deferred_message_is_given_to_nobody_who_does_not_ask_for_it(clock, queue):
    message = deferred("jobs")

    clock.advance(86_400)
    reap()
    activate()

    assert state_of(message) == "deferred"
    assert claim_ids("jobs") == []
    assert Message.objects.claimable() == set()


def test_it_is_fetched_by_id_under_a_new_lease_and_counts_a_delivery(clock, queue):
    message = deferred("jobs", {"a": 1})
    clock.advance(60)

    (again,) = fetch("jobs", message, worker="me", lock_duration=5)

    assert (again.pk, again.data, again.delivery_count) == (message.pk, {"a": 1}, 2)
    assert (again.state, again.locked_by) == ("locked", "me")
    assert again.locked_until == clock.now + timedelta(seconds=5)
    assert again.lock_token != message.lock_token
    with pytest.raises(LockLost):
        message.complete()
    again.complete()
    assert state_of(message) == "gone"


def test_the_row_keeps_everything_but_its_lease(clock, queue):
    message = enqueue_and_claim("jobs", {"a": 1}, ttl=600, subject="s", priority=3)
    before = row_of(message)

    message.defer()

    lease = {"lock_token": None, "locked_by": None, "locked_at": None, "locked_until": None}
    assert row_of(message) == before | lease | {"state": "deferred"}


def test_several_are_fetched_in_claim_order(clock, queue):
    low, high, same = (deferred("jobs", priority=p) for p in (0, 5, 5))

    batch = fetch("jobs", low, same, high, high)

    assert [message.pk for message in batch] == [high.pk, same.pk, low.pk]
    assert len({message.lock_token for message in batch}) == 3


def test_what_is_not_deferred_in_that_queue_is_passed_over(clock, queue, make_queue):
    make_queue("other")
    mine = deferred("jobs")
    elsewhere = deferred("other")
    locked = enqueue_and_claim("jobs")
    active = enqueue("jobs", None)
    before = [row_of(message) for message in (elsewhere, locked, active)]

    given = Message.objects.claim_deferred(
        "jobs", [elsewhere.pk, locked.pk, active.pk, mine.pk, 999_999, -1, 2**70]
    )

    assert [message.pk for message in given] == [mine.pk]
    assert [row_of(message) for message in (elsewhere, locked, active)] == before


def test_a_second_fetch_finds_nothing(clock, queue):
    message = deferred("jobs")
    fetch("jobs", message)

    assert fetch("jobs", message) == []


def test_a_paused_queue_and_a_time_to_live_that_is_over_give_nothing(clock, queue):
    message = deferred("jobs", ttl=60)
    queue.pause()
    assert fetch("jobs", message) == []

    queue.resume()
    clock.advance(60)
    assert fetch("jobs", message) == []


def test_it_keeps_its_place_and_its_line_waits(clock, group_queue):
    head = deferred("groups", group_id="g")
    behind = enqueue("groups", None, group_id="g")
    assert claim_ids("groups") == []

    (again,) = fetch("groups", head)
    again.complete()

    assert claim_ids("groups") == [behind.pk]


def test_nothing_overtakes_it_not_even_an_earlier_message_that_is_redriven(clock, group_queue):
    earlier = enqueue_and_claim("groups", group_id="g")
    earlier.reject("Broken")
    later = deferred("groups", group_id="g")

    DeadLetter.objects.redrive([earlier.pk])
    assert claim_ids("groups") == []

    (again,) = fetch("groups", later)
    again.complete()
    assert claim_ids("groups") == [earlier.pk]


def test_a_fetch_may_exceed_the_bound_and_the_next_failure_ends_it(clock, make_queue):
    make_queue("jobs", max_delivery_count=1)
    message = deferred("jobs")

    (again,) = fetch("jobs", message)
    assert again.delivery_count == 2
    again.abandon(delay=0)

    assert state_of(message) == "dead_lettered"


def test_an_expired_lease_cannot_defer(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(30)

    with pytest.raises(LockLost) as caught:
        message.defer()

    assert caught.value.verb == "defer"
    assert state_of(message) == "locked"


def test_deferring_is_the_callers_in_atomic_and_fetching_is_refused_there(clock, queue):
    message = enqueue_and_claim("jobs")

    with pytest.raises(RuntimeError), transaction.atomic():
        message.defer()
        raise RuntimeError
    assert state_of(message) == "locked"

    waiting = deferred("jobs")
    with pytest.raises(TransactionRefused), transaction.atomic():
        fetch("jobs", waiting)
    assert state_of(waiting) == "deferred"


def test_an_unknown_queue_is_refused(clock, queue):
    with pytest.raises(QueueNotFound):
        Message.objects.claim_deferred("job", [1])
    assert Message.objects.claim_deferred("jobs", []) == []


def test_claims_go_on_around_it(clock, queue):
    deferred("jobs")
    enqueue("jobs", "next")

    assert claim_one("jobs").data == "next"
