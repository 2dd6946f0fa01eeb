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
def test_messages_of_a_line_are_claimed_and_deleted_in_order(clock, make_queue, mode):
    make_queue("jobs", ordering_mode=mode)
    groups = ("g", "g", "h", "g")
    ids = [enqueue("jobs", None, group_id=group).pk for group in groups]

    batches = [[m.pk for m in claim_and_delete("jobs", limit=limit)] for limit in (2, 9, 9)]

    assert batches == [ids[:2], ids[2:], []]


def test_repeated_attempt_gets_the_deleted_messages_again(clock, queue):
    enqueue("jobs", b"\x00\xff", subject="s", properties={"k": "v"})
    enqueue("jobs", None)
    first = Message.objects.claim_and_delete("jobs", attempt_id="a", limit=1)
    clock.advance(29 * 60)

    (again,) = Message.objects.claim_and_delete("jobs", attempt_id="a", limit=1)

    assert again.pk == first[0].pk
    assert (again.data, again.subject, again.properties) == (b"\x00\xff", "s", {"k": "v"})
    assert (again.lease, again.delivery_count) == (None, 1)
    assert len(claim_and_delete("jobs")) == 1


def test_attempt_is_forgotten_after_half_an_hour(clock, queue):
    enqueue("jobs", None)
    Message.objects.claim_and_delete("jobs", attempt_id="a")
    clock.advance(30 * 60)

    assert Message.objects.claim_and_delete("jobs", attempt_id="a") == []


def test_attempt_without_messages_is_not_recorded(clock, queue):
    assert Message.objects.claim_and_delete("jobs", attempt_id="a") == []
    stored = enqueue("jobs", None)

    assert [m.pk for m in Message.objects.claim_and_delete("jobs", attempt_id="a")] == [stored.pk]


def test_message_over_max_bytes_is_the_last_of_the_batch(clock, queue):
    for _ in range(4):
        enqueue("jobs", b"12345")

    batches = [
        Message.objects.claim_and_delete("jobs", limit=9, max_bytes=size) for size in (1, 9, 9)
    ]

    assert [len(batch) for batch in batches] == [1, 2, 1]


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
