"""9.8 Publishing many messages."""

import pytest

from django_mqlite import Draft, DuplicateConflict, GroupRequired, TopicNotFound
from django_mqlite.models import Message, Queue, Subscription

pytestmark = [pytest.mark.django_db, pytest.mark.rule("9.8")]


def publish(*items, **common):
    return Message.objects.publish_many("orders", items, **common)


@pytest.fixture
def subscriptions(clock, db):
    Subscription.objects.subscribe("orders", "copies")
    Subscription.objects.subscribe("orders", "big", filter='subject == "big"')


def test_copies_of_each_message_are_sorted_by_queue(subscriptions):
    copies = publish(Draft(1, subject="big"), Draft(2))

    assert [[copy.queue for copy in batch] for batch in copies] == [["big", "copies"], ["copies"]]
    ids = [copy.pk for batch in copies for copy in batch]
    assert ids == sorted(ids)
    assert Message.objects.count() == 3


def test_message_that_no_filter_matches_has_no_copies(clock, db):
    Subscription.objects.subscribe("orders", "big", filter='subject == "big"')

    assert publish(1, 2) == [[], []]


def test_message_id_is_not_generated(subscriptions):
    ((plain,), (named,)) = publish(1, Draft(2, message_id="m"))

    assert (plain.message_id, named.message_id) == (None, "m")


def test_conflict_takes_the_place_of_its_copy_only(subscriptions):
    Queue.objects.configure("copies", dedup_window=60)
    publish(Draft(1, message_id="m", subject="big"))

    ((big, copy), (other,)) = publish(Draft(2, message_id="m", subject="big"), 3)

    assert big.data == 2
    assert isinstance(copy, DuplicateConflict)
    assert other.data == 3


def test_copy_that_is_refused_refuses_every_message(subscriptions):
    Queue.objects.configure("big", ordering_mode="group_fifo")

    with pytest.raises(GroupRequired):
        publish(1, Draft(2, subject="big"))

    assert not Message.objects.exists()


def test_topic_without_subscriptions_is_not_found(clock, db):
    with pytest.raises(TopicNotFound):
        publish(1)
