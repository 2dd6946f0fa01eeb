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
def test_a_topic_is_its_subscriptions_and_each_has_a_queue_of_its_own(orders):
    assert [(q.name, q.kind) for q in Queue.objects.order_by("name")] == [
        ("mailing", "subscription"),
        ("stock", "subscription"),
    ]
    assert Queue.objects.get(name="stock").max_delivery_count == 3

    publish("orders", {"order": 1})

    assert sorted(Message.objects.values_list("queue", flat=True)) == ["mailing", "stock"]


@pytest.mark.rule("9.1")
def test_the_copies_are_settled_each_for_itself(orders):
    publish("orders", {"order": 1})

    claim_one("mailing").complete()
    claim_one("stock").reject("Broken")
    publish("orders", {"order": 2})

    assert claim_one("mailing").data == {"order": 2}
    assert claim_one("stock").data == {"order": 2}


@pytest.mark.rule("9.1")
def test_the_queue_of_a_subscription_is_a_queue_like_any(orders):
    enqueue("mailing", "directly")

    assert claim_one("mailing").data == "directly"


@pytest.mark.rule("9.1")
def test_a_topic_ends_with_its_last_subscription(orders):
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
def test_the_copies_share_their_message_id_and_have_ids_of_their_own(orders):
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
def test_all_copies_are_of_one_transaction(orders):
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
def test_one_subscription_that_refuses_stops_all(orders):
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
def test_the_rules_of_a_message_hold_for_a_publication(orders):
    with pytest.raises(MessageTooLarge):
        publish("orders", b"x" * (1024 * 1024 + 1))
    with pytest.raises(ValueError, match="ttl"):
        publish("orders", None, ttl=0)

    assert not Message.objects.exists()


@pytest.mark.rule("9.2")
def test_a_copy_has_its_subscriptions_time_to_live_and_order(clock, db):
    subscribe("orders", "short", default_ttl=10)
    subscribe("orders", "strict", ordering_mode="strict_fifo")

    publish("orders", 1)
    publish("orders", 2)
    clock.advance(10)

    assert claim_ids("short") == []
    assert [m.data for m in Message.objects.claim("strict", limit=9)] == [1]


@pytest.mark.rule("9.3")
def test_no_match_is_a_valid_answer(clock, db):
    subscribe("orders", "large", filter='subject == "large"')

    assert publish("orders", 1, subject="small") == []

    assert not Message.objects.exists()


@pytest.mark.rule("9.3")
def test_no_such_topic_is_an_error_that_names_the_one_that_was_meant(orders):
    with pytest.raises(TopicNotFound, match="'orders'") as caught:
        publish("order", 1)
    assert caught.value.topic == "order"

    with pytest.raises(TopicNotFound):
        publish("mailing", 1)
    assert not Message.objects.exists()


@pytest.mark.rule("9.5")
def test_subscribing_again_replaces_the_filter_and_nothing_else(orders, clock):
    publish("orders", "kept")
    before = list(Queue.objects.order_by("name").values())
    created_at = Subscription.objects.get(subscription="stock").created_at
    clock.advance(60)

    subscription = subscribe("orders", "stock", filter='subject == "stock"')

    assert (subscription.filter, subscription.created_at) == ('subject == "stock"', created_at)
    assert list(Queue.objects.order_by("name").values()) == before
    assert queues_of(publish("orders", 1)) == ["mailing"]
    assert claim_one("stock").data == "kept"

    assert subscribe("orders", "stock").filter == ""
    assert queues_of(publish("orders", 1)) == ["mailing", "stock"]


@pytest.mark.rule("9.5")
def test_options_for_a_subscription_that_exists_are_refused_and_change_nothing(orders):
    before = list(Queue.objects.order_by("name").values())

    with pytest.raises(ValueError, match="configure"):
        subscribe("orders", "stock", filter="true", max_delivery_count=9)

    assert Subscription.objects.get(subscription="stock").filter == ""
    assert list(Queue.objects.order_by("name").values()) == before
    assert Queue.objects.configure("stock", max_delivery_count=9).max_delivery_count == 9
