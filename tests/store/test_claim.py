"""Messages are taken under a lease."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import QueueNotFound, enqueue
from django_mqlite.models import Message
from django_mqlite.store.sqlite.claim import claimable_queues
from tests.support.verbs import activate, claim_ids, claim_one, enqueue_and_claim, row_of

pytestmark = pytest.mark.django_db


def test_the_lease_is_in_the_message(clock, queue):
    enqueue("jobs", {"order": 7})

    message = claim_one("jobs", worker="host:1:2")

    assert (message.state, message.delivery_count, message.locked_by) == ("locked", 1, "host:1:2")
    assert message.locked_at == clock.now
    assert message.locked_until == clock.now + timedelta(seconds=30)
    assert re.fullmatch("[0-9a-f]{32,}", message.lock_token)
    assert (message.lease.queue, message.lease.id) == ("jobs", message.pk)
    assert message.lease.lock_token == message.lock_token


def test_what_is_returned_is_what_is_stored(clock, queue):
    enqueue(
        "jobs",
        {"order": 7},
        priority=3,
        ttl=60,
        message_id="m-1",
        correlation_id="c-1",
        reply_to="answers",
        subject="order.placed",
        properties={"tenant": "a"},
    )

    returned = claim_one("jobs")

    stored = Message.objects.get(pk=returned.pk)
    for field in Message._meta.concrete_fields:
        assert getattr(returned, field.name) == getattr(stored, field.name), field.name


def test_content_lease_and_count_come_from_one_statement(clock, queue):
    enqueue("jobs", {"order": 7})

    with CaptureQueriesContext(connection) as queries:
        (message,) = Message.objects.claim("jobs")
        assert message.data == {"order": 7}

    writes = [query["sql"] for query in queries if "mqlite_messages" in query["sql"]]
    assert len(writes) == 1


def test_an_empty_queue_gives_nothing(clock, queue):
    assert Message.objects.claim("jobs") == []


def test_an_unknown_queue_is_named_with_the_one_that_was_meant(clock, queue):
    with pytest.raises(QueueNotFound, match="Did you mean 'jobs'"):
        Message.objects.claim("job")


def test_the_lock_duration_is_the_queues_unless_told(clock, make_queue):
    make_queue("jobs", lock_duration=7)
    for _ in range(3):
        enqueue("jobs", None)

    assert claim_one("jobs").locked_until == clock.now + timedelta(seconds=7)
    assert claim_one("jobs", lock_duration=0.25).locked_until == clock.now + timedelta(
        milliseconds=250
    )
    assert claim_one("jobs", lock_duration=timedelta(hours=1)).locked_until == (
        clock.now + timedelta(hours=1)
    )


@pytest.mark.parametrize("lock_duration", [0, -1, float("nan"), float("inf"), 10**12])
def test_a_lock_duration_that_is_none_is_refused(clock, queue, lock_duration):
    with pytest.raises(ValueError, match="lock_duration"):
        Message.objects.claim("jobs", lock_duration=lock_duration)


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (2**63, ValueError),
        (1.0, TypeError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
    ],
)
def test_a_limit_that_is_no_count_is_refused(clock, queue, limit, error):
    with pytest.raises(error, match="limit"):
        Message.objects.claim("jobs", limit=limit)


def test_the_order_is_by_priority_then_id(clock, queue):
    ids = [enqueue("jobs", None, priority=p).pk for p in (0, 5, -5, 5, 0)]

    one_by_one = [claim_one("jobs").pk for _ in ids]

    assert one_by_one == [ids[1], ids[3], ids[0], ids[4], ids[2]]


def test_a_batch_is_in_claim_order_and_not_in_id_order(clock, queue):
    ids = [enqueue("jobs", None, priority=p).pk for p in (0, 5, -5, 5, 0)]

    assert claim_ids("jobs") == [ids[1], ids[3], ids[0], ids[4], ids[2]]


def test_a_batch_takes_the_first_by_claim_order(clock, queue):
    ids = [enqueue("jobs", None, priority=p).pk for p in (0, 5, -5, 5, 0)]

    assert claim_ids("jobs", limit=2) == [ids[1], ids[3]]
    assert claim_ids("jobs", limit=2) == [ids[0], ids[4]]


def test_a_batch_is_judged_at_one_time_and_each_message_has_a_token_of_its_own(clock, queue):
    for _ in range(20):
        enqueue("jobs", None)

    batch = Message.objects.claim("jobs", limit=20)

    assert len({message.lock_token for message in batch}) == 20
    assert len({message.locked_until for message in batch}) == 1
    assert {message.delivery_count for message in batch} == {1}


def test_the_token_of_each_delivery_is_fresh(clock, queue):
    tokens = set()
    message = enqueue_and_claim("jobs")
    for _ in range(5):
        tokens.add(message.lock_token)
        message.abandon(delay=0)
        message = claim_one("jobs")

    assert len(tokens) == 5
    assert len({token[:32] for token in tokens}) == 5
    assert message.delivery_count == 6


def test_a_batch_takes_no_more_than_there_are(clock, queue):
    ids = [enqueue("jobs", None).pk for _ in range(3)]

    assert claim_ids("jobs", limit=1_000) == ids


def test_a_locked_message_is_not_taken_again(clock, queue):
    enqueue_and_claim("jobs")

    assert Message.objects.claim("jobs") == []


def test_an_expired_lease_is_not_taken_before_it_is_released(clock, queue):
    enqueue_and_claim("jobs")

    clock.advance(3_600)

    assert Message.objects.claim("jobs") == []


def test_only_the_queue_asked_for_is_served(clock, queue, make_queue):
    make_queue("other")
    enqueue("other", None)

    assert Message.objects.claim("jobs") == []
    assert claim_one("other").queue == "other"


def test_a_paused_queue_gives_nothing_until_resumed(clock, queue):
    enqueue("jobs", None)
    queue.pause()

    assert Message.objects.claim("jobs") == []

    queue.resume()
    assert claim_one("jobs")


def test_a_scheduled_message_is_not_taken_before_it_is_active(clock, queue):
    enqueue("jobs", None, delay=10)

    clock.advance(10)
    assert Message.objects.claim("jobs") == []

    activate()
    assert claim_one("jobs")


@pytest.mark.parametrize(("after", "found"), [(59.999, 1), (60, 0), (61, 0)])
def test_a_message_whose_time_to_live_is_over_is_not_taken(clock, queue, after, found):
    enqueue("jobs", None, ttl=60)

    clock.advance(after)

    assert len(Message.objects.claim("jobs")) == found


def test_expired_messages_do_not_use_up_the_limit(clock, queue):
    for _ in range(3):
        enqueue("jobs", None, ttl=1, priority=9)
    alive = [enqueue("jobs", None).pk for _ in range(2)]

    clock.advance(1)

    assert claim_ids("jobs", limit=2) == alive


def test_claiming_changes_nothing_but_the_lease(clock, queue):
    message = enqueue("jobs", {"a": 1}, priority=3, ttl=60, message_id="m", properties={"a": "b"})
    before = row_of(message)

    clock.advance(1)
    claim_one("jobs")

    after = row_of(message)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {
        "state",
        "lock_token",
        "locked_at",
        "locked_until",
        "delivery_count",
    }


def test_claimable_are_the_queues_in_which_a_claim_finds_something(clock, make_queue):
    for name in ("active", "empty", "paused", "locked", "scheduled", "expired", "waiting", "dead"):
        make_queue(name)
    enqueue("active", None)
    make_queue("paused").pause()
    enqueue("paused", None)
    enqueue_and_claim("locked")
    enqueue("scheduled", None, delay=60)
    enqueue("expired", None, ttl=1)
    enqueue_and_claim("waiting", None, group_id="g")
    enqueue("waiting", None, group_id="g")
    enqueue_and_claim("dead").reject("Broken")
    clock.advance(1)

    found = claimable_queues(connection, now=clock.now_ms())

    assert found == {"active"}
    names = ["active", "empty", "paused", "locked", "scheduled", "expired", "waiting", "dead"]
    assert {name for name in names if Message.objects.claim(name)} == found


def test_what_is_claimed_outside_the_asked_worker_name_has_none(clock, queue):
    assert enqueue_and_claim("jobs").locked_by is None
