"""2.6 Claim and delete."""

import pytest
from django.db import transaction

from django_mqlite import LockLost, enqueue
from django_mqlite.models import Message
from tests.support.transactions import committed_messages
from tests.support.verbs import claim_ids, enqueue_and_claim

pytestmark = [pytest.mark.django_db, pytest.mark.rule("2.6")]


def claim_and_delete(queue, limit=100):
    return Message.objects.claim_and_delete(str(queue), limit=limit)


@pytest.mark.django_db(transaction=True)
def test_claimed_and_deleted_message_has_no_row_and_no_lease(clock, queue):
    stored = enqueue("jobs", {"a": 1}, subject="s", properties={"k": "v"})

    (message,) = claim_and_delete("jobs")

    assert committed_messages() == []
    assert (message.pk, message.data, message.delivery_count) == (stored.pk, {"a": 1}, 1)
    assert (message.subject, message.properties) == ("s", {"k": "v"})
    assert (message.lease, message.lock_token, message.locked_until) == (None, None, None)


@pytest.mark.parametrize("verb", ["complete", "abandon", "defer", "renew"])
def test_claimed_and_deleted_message_cannot_be_settled(clock, queue, verb):
    enqueue("jobs", None)
    (message,) = claim_and_delete("jobs")

    with pytest.raises(LockLost):
        getattr(message, verb)()


def test_claim_and_delete_takes_what_claim_would_take(clock, queue):
    enqueue("jobs", "later", delay=60, priority=9)
    enqueue("jobs", "expired", ttl=1, priority=9)
    enqueue_and_claim("jobs", "locked", priority=99)
    low, high, same = (enqueue("jobs", None, priority=p).pk for p in (0, 5, 5))
    clock.advance(1)
    queue.pause()
    assert claim_and_delete("jobs") == []
    queue.resume()

    assert [message.pk for message in claim_and_delete("jobs", limit=2)] == [high, same]
    assert [message.pk for message in claim_and_delete("jobs")] == [low]
    assert claim_and_delete("jobs") == []


@pytest.mark.parametrize("mode", ["standard", "group_fifo", "strict_fifo"])
def test_line_is_claimed_and_deleted_one_message_at_a_time(clock, make_queue, mode):
    make_queue("jobs", ordering_mode=mode)
    ids = [enqueue("jobs", None, group_id="g").pk for _ in range(3)]

    batches = [[message.pk for message in claim_and_delete("jobs")] for _ in range(4)]

    assert batches == [*([id] for id in ids), []]


def test_locked_head_blocks_claim_and_delete(clock, group_queue):
    head = enqueue_and_claim("groups", group_id="g")
    behind = enqueue("groups", None, group_id="g")

    assert claim_and_delete("groups") == []

    head.complete()
    assert [message.pk for message in claim_and_delete("groups")] == [behind.pk]


@pytest.mark.django_db(transaction=True)
def test_rollback_restores_a_claimed_and_deleted_message(clock, queue):
    stored = enqueue("jobs", None)
    before = list(Message.objects.values())

    with pytest.raises(RuntimeError), transaction.atomic():
        assert [message.pk for message in claim_and_delete("jobs")] == [stored.pk]
        raise RuntimeError

    assert list(Message.objects.values()) == before
    assert claim_ids("jobs") == [stored.pk]
