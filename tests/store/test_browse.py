"""Messages are looked at and left alone."""

import pytest

from django_mqlite import QueueNotFound, enqueue
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import claim_ids, dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


def ids(messages):
    return [message.pk for message in messages]


def test_a_peek_shows_the_next_in_claim_order_and_changes_nothing(clock, queue):
    for priority in (0, 5, -5, 5):
        enqueue("jobs", None, priority=priority)
    before = list(Message.objects.order_by("pk").values())

    peeked = Message.objects.peek("jobs")

    assert list(Message.objects.order_by("pk").values()) == before
    assert ids(peeked) == claim_ids("jobs")
    assert {message.delivery_count for message in peeked} == {0}
    assert {message.lease for message in peeked} == {None}


def test_those_behind_a_head_come_after_all_heads(clock, group_queue):
    first, second, third = (enqueue("groups", n, group_id=g) for n, g in enumerate("aab"))

    assert ids(Message.objects.peek("groups")) == [first.pk, third.pk, second.pk]


def test_a_peek_shows_active_messages_of_that_queue_only(clock, queue, make_queue):
    make_queue("other")
    enqueue("other", None)
    enqueue_and_claim("jobs")
    dead_letter("jobs")
    enqueue("jobs", None, delay=60)
    active = enqueue("jobs", {"a": 1}, properties={"k": "v"})

    (peeked,) = Message.objects.peek("jobs")

    assert peeked.pk == active.pk
    assert (peeked.data, peeked.properties) == ({"a": 1}, {"k": "v"})


def test_the_longest_dead_is_peeked_first(clock, queue):
    messages = [enqueue("jobs", None) for _ in range(3)]
    claimed = Message.objects.claim("jobs", limit=3)
    for place in (2, 0, 1):
        claimed[place].reject("R", f"number {place}")
        clock.advance(1)

    dead = DeadLetter.objects.peek("jobs")

    assert ids(dead) == [messages[place].pk for place in (2, 0, 1)]
    assert [letter.dead_letter_description for letter in dead] == [
        "number 2",
        "number 0",
        "number 1",
    ]
    assert all(isinstance(letter, DeadLetter) for letter in dead)


@pytest.mark.parametrize("manager", [Message.objects, DeadLetter.objects], ids=["messages", "dead"])
def test_a_peek_is_bounded(clock, queue, manager):
    for _ in range(12):
        dead_letter("jobs")
    for _ in range(12):
        enqueue("jobs", None)

    assert len(manager.peek("jobs")) == 10
    assert len(manager.peek("jobs", limit=3)) == 3
    assert len(manager.peek("jobs", limit=100)) == 12


@pytest.mark.parametrize("manager", [Message.objects, DeadLetter.objects], ids=["messages", "dead"])
@pytest.mark.parametrize("limit", [0, -1, 2**63])
def test_a_limit_that_is_none_is_refused(clock, queue, manager, limit):
    with pytest.raises(ValueError, match="limit"):
        manager.peek("jobs", limit=limit)


@pytest.mark.parametrize("manager", [Message.objects, DeadLetter.objects], ids=["messages", "dead"])
def test_an_empty_queue_shows_nothing_and_an_unknown_one_is_refused(clock, queue, manager):
    assert manager.peek("jobs") == []

    with pytest.raises(QueueNotFound):
        manager.peek("job")


def test_the_dead_letters_are_the_dead_messages_and_no_others(clock, queue):
    dead = dead_letter("jobs")
    enqueue("jobs", None)

    assert ids(DeadLetter.objects.all()) == [dead.pk]
    assert Message.objects.count() == 2
