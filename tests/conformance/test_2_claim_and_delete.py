"""2.6 Taken for good."""

import pytest
from django.db import transaction

from django_mqlite import LockLost, QueueNotFound, enqueue
from django_mqlite.models import Message
from tests.support.transactions import committed_messages
from tests.support.verbs import claim_ids, enqueue_and_claim, reap

pytestmark = [pytest.mark.django_db, pytest.mark.rule("2.6")]


def take(queue, limit=100):
    return Message.objects.claim_and_delete(str(queue), limit=limit)


@pytest.mark.django_db(transaction=True)
def test_the_row_is_gone_with_the_claim_and_there_is_no_lease(clock, queue):
    stored = enqueue("jobs", {"a": 1}, subject="s", properties={"k": "v"})

    (message,) = take("jobs")

    assert committed_messages() == []
    assert (message.pk, message.data, message.delivery_count) == (stored.pk, {"a": 1}, 1)
    assert (message.subject, message.properties) == ("s", {"k": "v"})
    assert (message.lease, message.lock_token, message.locked_until) == (None, None, None)


@pytest.mark.parametrize("verb", ["complete", "abandon", "defer", "renew"])
def test_there_is_nothing_to_settle(clock, queue, verb):
    enqueue("jobs", None)
    (message,) = take("jobs")

    with pytest.raises(LockLost):
        getattr(message, verb)()


def test_it_takes_what_a_claim_would_in_the_same_order(clock, queue, group_queue):
    enqueue("jobs", "later", delay=60, priority=9)
    enqueue("jobs", "expired", ttl=1, priority=9)
    enqueue_and_claim("jobs", "locked", priority=99)
    low, high, same = (enqueue("jobs", None, priority=p).pk for p in (0, 5, 5))
    clock.advance(1)

    assert [message.pk for message in take("jobs", limit=2)] == [high, same]
    assert [message.pk for message in take("jobs")] == [low]
    assert take("jobs") == []


def test_a_paused_queue_gives_nothing(clock, queue):
    enqueue("jobs", None)
    queue.pause()

    assert take("jobs") == []
    assert Message.objects.count() == 1


@pytest.mark.parametrize("mode", ["standard", "group_fifo", "strict_fifo"])
def test_a_line_gives_one_at_a_time_and_the_next_may_pass_at_once(clock, make_queue, mode):
    make_queue("jobs", ordering_mode=mode)
    ids = [enqueue("jobs", None, group_id="g").pk for _ in range(3)]

    assert [[message.pk for message in take("jobs")] for _ in range(4)] == [[i] for i in ids] + [[]]


def test_a_lease_at_work_holds_its_line_back(clock, group_queue):
    head = enqueue_and_claim("groups", group_id="g")
    behind = enqueue("groups", None, group_id="g")

    assert take("groups") == []

    head.complete()
    assert [message.pk for message in take("groups")] == [behind.pk]


@pytest.mark.django_db(transaction=True)
def test_in_atomic_a_rollback_puts_it_back_as_it_was(clock, queue):
    stored = enqueue("jobs", None)
    before = list(Message.objects.values())

    with pytest.raises(RuntimeError), transaction.atomic():
        assert [message.pk for message in take("jobs")] == [stored.pk]
        raise RuntimeError

    assert list(Message.objects.values()) == before
    assert claim_ids("jobs") == [stored.pk]


def test_there_is_no_second_delivery(clock, make_queue):
    make_queue("jobs", retain_completed=60)
    enqueue("jobs", None)

    take("jobs")
    clock.advance(3_600)
    reap()

    assert claim_ids("jobs") == []
    assert not Message.objects.exists()


def test_an_unknown_queue_is_refused(clock, queue):
    with pytest.raises(QueueNotFound):
        take("job")
