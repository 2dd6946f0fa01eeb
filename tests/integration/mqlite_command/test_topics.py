"""mqlite queues, subscriptions, subscribe, unsubscribe, publish and workers."""

import pytest
from django.core.management import CommandError

from django_mqlite.models import Message, Queue, Subscription
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.registry import WorkerEntry

from .calls import answer, mqlite


def test_queues_lists_each_queue(queue, make_queue):
    make_queue("strict", ordering_mode="strict_fifo")

    assert [row["queue"] for row in answer("queues")["queues"]] == ["jobs", "strict"]
    assert "strict_fifo" in mqlite("queues")


def test_queues_of_an_empty_database_says_so(db):
    assert mqlite("queues").startswith("There are no queues. Declare them")


def test_queues_shows_the_configuration_of_one(make_queue):
    make_queue("jobs", max_delivery_count=3)

    assert answer("queues", "jobs")["max_delivery_count"] == 3
    assert "  max delivery count: 3" in mqlite("queues", "jobs")


def test_queues_shows_durations_and_limits_in_words(make_queue):
    make_queue("jobs", lock_duration=90, dedup_window=0, dlq_max_age=None)

    lines = mqlite("queues", "jobs").splitlines()

    assert "  lock duration: 1 min 30 s" in lines
    assert "  dedup window: off" in lines
    assert "  dlq max age: unlimited" in lines
    assert "  dlq max count: from the settings" in lines
    assert answer("queues", "jobs")["lock_duration_ms"] == 90_000


@pytest.mark.parametrize(
    "arguments", [("nope",), ("nope", "--delete", "--yes"), ("--delete", "--yes")]
)
def test_queues_refuses_an_unknown_queue(queue, arguments):
    with pytest.raises(CommandError, match="queue"):
        mqlite("queues", *arguments)

    assert Queue.objects.exists()


def test_queues_deletes_a_queue_after_confirmation(queue):
    Message.objects.enqueue("jobs", 1)

    with pytest.raises(CommandError, match="pass --yes"):
        mqlite("queues", "jobs", "--delete")
    assert Message.objects.exists()

    assert mqlite("queues", "jobs", "--delete", "--yes") == "Queue jobs deleted.\n"
    assert not Queue.objects.exists()


def test_queues_refuses_to_delete_a_queue_in_use_before_it_asks(queue, settings):
    Subscription.objects.subscribe("prices", "stock")
    settings.MQLITE = {"QUEUES": {"jobs": {}}}

    with pytest.raises(CommandError, match="unsubscribe"):
        mqlite("queues", "stock", "--delete")
    with pytest.raises(CommandError, match="it is declared in MQLITE"):
        mqlite("queues", "jobs", "--delete")


def test_subscriptions_lists_topics_and_filters(queue):
    Subscription.objects.subscribe("prices", "stock", filter='subject == "paid"')
    Subscription.objects.subscribe("orders", "mails")

    assert answer("subscriptions", "prices") == {
        "subscriptions": [
            {"topic": "prices", "subscription": "stock", "filter": 'subject == "paid"'}
        ]
    }
    assert "every message" in mqlite("subscriptions")
    assert mqlite("subscriptions", "nope") == "Topic nope has no subscriptions.\n"


def test_subscribe_without_filter_keeps_the_filter(queue):
    paid = 'subject == "paid"'
    text = mqlite("subscribe", "prices", "stock", "--filter", paid)

    assert text == f"Queue stock subscribed to topic prices: {paid}\n"
    assert answer("subscribe", "prices", "stock") == {
        "topic": "prices",
        "subscription": "stock",
        "filter": paid,
    }
    assert mqlite("subscribe", "prices", "stock", "--filter", "").endswith("every message\n")
    assert Subscription.objects.get().filter == ""


def test_unsubscribe_deletes_the_subscription_after_confirmation(queue):
    Subscription.objects.subscribe("prices", "stock")

    with pytest.raises(CommandError, match="pass --yes"):
        mqlite("unsubscribe", "stock")
    assert mqlite("unsubscribe", "stock", "--yes") == "Subscription stock deleted.\n"

    assert not Subscription.objects.exists()


def test_unsubscribe_refuses_a_queue_without_asking(queue):
    for options in ((), ("--yes",)):
        with pytest.raises(CommandError, match="There is no subscription 'jobs'"):
            mqlite("unsubscribe", "jobs", *options)

    assert Queue.objects.exists()


def test_publish_names_the_copies(queue):
    Subscription.objects.subscribe("prices", "stock")
    Subscription.objects.subscribe("prices", "mails", filter='subject == "paid"')

    assert answer("publish", "prices", "7") == {
        "topic": "prices",
        "messages": [{"id": 1, "queue": "stock", "duplicate": False}],
    }
    assert mqlite("publish", "prices", "8", "--subject", "paid").count("enqueued in queue") == 2


def test_publish_names_the_copies_that_were_not_stored(queue):
    Subscription.objects.subscribe("prices", "stock")
    Message.objects.publish("prices", 7, unique_key="k")

    text = mqlite("publish", "prices", "8", "--unique-key", "k")

    assert text == "Not enqueued: queue stock already has it as #1.\n"
    assert answer("publish", "prices", "8", "--unique-key", "k")["messages"] == [
        {"id": 1, "queue": "stock", "duplicate": True}
    ]


def test_publish_without_a_match_says_that_nothing_was_enqueued(queue):
    Subscription.objects.subscribe("prices", "mails", filter='subject == "paid"')

    assert mqlite("publish", "prices", "7").startswith("Nothing was enqueued")
    with pytest.raises(CommandError, match="nope"):
        mqlite("publish", "nope", "7")


def test_workers_lists_live_workers(queue):
    entry = WorkerEntry(WorkerOptions(using="default", queues=("jobs",), threads=3))
    entry.refresh(in_flight=2)

    (worker,) = answer("workers")["workers"]

    assert (worker["live"], worker["queues"], worker["slots"], worker["in_flight"]) == (
        True,
        ["jobs"],
        3,
        2,
    )
    assert worker["worker"] in mqlite("workers")
    entry.remove()
    assert mqlite("workers") == "No worker is registered.\n"
