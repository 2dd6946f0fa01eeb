"""9.1 to 9.3 and 9.5 Topics."""

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_mqlite import (
    DuplicateConflict,
    GroupRequired,
    MessageTooLarge,
    TopicNotFound,
    enqueue,
    publish,
)
from django_mqlite.models import Message, Queue, Subscription
from tests.support.transactions import committed_messages
from tests.support.verbs import claim_ids, claim_one

pytestmark = pytest.mark.django_db

subscribe = Subscription.objects.subscribe


@pytest.fixture
def orders(clock, db):
    """A topic with two subscriptions."""
    subscribe("orders", "mailing")
    subscribe("orders", "stock", max_delivery_count=3)


def queues_of(messages):
    return [message.queue for message in messages]


@pytest.mark.rule("9.1")
def test_each_subscription_of_a_topic_has_its_own_queue(orders):
    assert [(q.name, q.kind) for q in Queue.objects.order_by("name")] == [
        ("mailing", "subscription"),
        ("stock", "subscription"),
    ]
    assert Queue.objects.get(name="stock").max_delivery_count == 3

    publish("orders", {"order": 1})

    assert sorted(Message.objects.values_list("queue", flat=True)) == ["mailing", "stock"]


@pytest.mark.rule("9.1")
def test_copies_are_settled_independently(orders):
    publish("orders", {"order": 1})

    claim_one("mailing").complete()
    claim_one("stock").reject("Broken")
    publish("orders", {"order": 2})
    enqueue("mailing", "directly")

    assert claim_one("mailing").data == {"order": 2}
    assert claim_one("mailing").data == "directly"
    assert claim_one("stock").data == {"order": 2}


@pytest.mark.rule("9.1")
def test_topic_ends_with_its_last_subscription(orders):
    publish("orders", 1)

    assert Subscription.objects.unsubscribe("mailing") is True
    assert queues_of(publish("orders", 2)) == ["stock"]
    assert Subscription.objects.unsubscribe("stock") is True
    assert Subscription.objects.unsubscribe("stock") is False

    assert not Queue.objects.exists()
    assert not Message.objects.exists()
    with pytest.raises(TopicNotFound):
        publish("orders", 3)


@pytest.mark.rule("9.2")
def test_copies_share_the_message_id_and_have_different_ids(orders):
    headers = {"subject": "s", "properties": {"k": "v"}, "correlation_id": "c", "priority": 2}

    first = publish("orders", {"order": 1}, message_id="m", **headers)
    second = publish("orders", {"order": 2})

    assert queues_of(first) == ["mailing", "stock"]
    for message in Message.objects.filter(message_id="m"):
        assert message.data == {"order": 1}
        assert {name: getattr(message, name) for name in headers} == headers
    assert len({message.pk for message in (*first, *second)}) == 4
    assert second[0].message_id == second[1].message_id
    assert second[0].message_id not in (None, "m")


@pytest.mark.rule("9.2")
@pytest.mark.django_db(transaction=True)
def test_copies_are_stored_in_one_transaction(orders):
    with pytest.raises(RuntimeError), transaction.atomic():
        publish("orders", 1)
        raise RuntimeError
    assert committed_messages() == []

    with transaction.atomic():
        copies = publish("orders", 1)
        assert committed_messages() == []
    assert committed_messages() == [message.pk for message in copies]


@pytest.mark.rule("9.2")
@pytest.mark.django_db(transaction=True)
def test_subscription_that_refuses_its_copy_stops_all(orders):
    subscribe("orders", "z-in-order", ordering_mode="group_fifo")

    with transaction.atomic():
        Group.objects.create(name="effect")
        with pytest.raises(GroupRequired):
            publish("orders", 1)
        copies = publish("orders", 2, group_id="g")

    assert queues_of(copies) == ["mailing", "stock", "z-in-order"]
    assert committed_messages() == [message.pk for message in copies]
    assert Group.objects.count() == 1


@pytest.mark.rule("9.2")
def test_each_subscription_has_its_own_window(orders):
    subscribe("orders", "once", dedup_window=60)
    publish("orders", 1, message_id="m")

    again = publish("orders", 1, message_id="m")

    assert [(m.queue, m.duplicate) for m in again] == [
        ("mailing", False),
        ("once", True),
        ("stock", False),
    ]
    with pytest.raises(DuplicateConflict):
        publish("orders", 2, message_id="m")
    assert Message.objects.count() == 5


@pytest.mark.rule("9.2")
def test_publish_validates_the_message(orders):
    with pytest.raises(MessageTooLarge):
        publish("orders", b"x" * (1024 * 1024 + 1))
    with pytest.raises(ValueError, match="ttl"):
        publish("orders", None, ttl=0)

    assert not Message.objects.exists()


@pytest.mark.rule("9.2")
def test_copy_has_the_ttl_and_order_of_its_subscription(clock, db):
    subscribe("orders", "short", default_ttl=10)
    subscribe("orders", "strict", ordering_mode="strict_fifo")

    publish("orders", 1)
    publish("orders", 2)
    clock.advance(10)

    assert claim_ids("short") == []
    assert [m.data for m in Message.objects.claim("strict", limit=9)] == [1]


@pytest.mark.rule("9.3")
def test_publish_without_a_match_returns_nothing(clock, db):
    subscribe("orders", "large", filter='subject == "large"')

    assert publish("orders", 1, subject="small") == []

    assert not Message.objects.exists()


@pytest.mark.rule("9.3")
def test_unknown_topic_is_refused_with_a_suggestion(orders):
    with pytest.raises(TopicNotFound, match="'orders'") as caught:
        publish("order", 1)
    assert caught.value.topic == "order"

    with pytest.raises(TopicNotFound):
        publish("mailing", 1)
    assert not Message.objects.exists()


@pytest.mark.rule("9.5")
def test_repeated_subscribe_replaces_only_the_filter(orders, clock):
    publish("orders", "kept")
    before = list(Queue.objects.order_by("name").values())
    created_at = Subscription.objects.get(subscription="stock").created_at
    clock.advance(60)

    subscription = subscribe("orders", "stock", filter='subject == "stock"')

    assert (subscription.filter, subscription.created_at) == ('subject == "stock"', created_at)
    assert list(Queue.objects.order_by("name").values()) == before
    assert queues_of(publish("orders", 1)) == ["mailing"]
    assert claim_one("stock").data == "kept"

    assert subscribe("orders", "stock", filter=None).filter == 'subject == "stock"'
    assert subscribe("orders", "stock").filter == ""
    assert queues_of(publish("orders", 1)) == ["mailing", "stock"]


@pytest.mark.rule("9.5")
def test_options_of_an_existing_subscription_are_refused(orders):
    before = list(Queue.objects.order_by("name").values())

    with pytest.raises(ValueError, match="configure"):
        subscribe("orders", "stock", filter="true", max_delivery_count=9)

    assert Subscription.objects.get(subscription="stock").filter == ""
    assert list(Queue.objects.order_by("name").values()) == before
    assert Queue.objects.configure("stock", max_delivery_count=9).max_delivery_count == 9
