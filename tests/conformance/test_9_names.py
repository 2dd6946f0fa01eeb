"""9.4 One namespace for queues, subscriptions and topics."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_mqlite import NameConflict, enqueue, publish
from django_mqlite.conf import get_settings
from django_mqlite.models import Message, Queue, Subscription

pytestmark = [pytest.mark.django_db, pytest.mark.rule("9.4")]

subscribe = Subscription.objects.subscribe


def everything():
    return (
        list(Queue.objects.order_by("name").values()),
        list(Subscription.objects.order_by("subscription").values()),
        list(Message.objects.order_by("pk").values()),
    )


@pytest.fixture
def taken(clock, make_queue):
    """A queue `q` and a topic `t` with the subscriptions `s` and `s2`, all with messages."""
    make_queue("q")
    subscribe("t", "s")
    subscribe("t", "s2")
    enqueue("q", None)
    publish("t", None)


CONFLICTS = {
    "a queue like a topic": lambda: Queue.objects.create_queue("t"),
    "a queue like a subscription": lambda: Queue.objects.create_queue("s"),
    "a topic like a queue": lambda: subscribe("q", "new"),
    "a topic like a subscription": lambda: subscribe("s", "new"),
    "a subscription like a queue": lambda: subscribe("new", "q"),
    "a subscription like a topic": lambda: subscribe("new", "t"),
    "a subscription like its own topic": lambda: subscribe("new", "new"),
    "a subscription like one of another topic": lambda: subscribe("new", "s"),
    "a queue's name for both": lambda: subscribe("q", "q"),
    "a topic's name for both": lambda: subscribe("t", "t"),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_name_conflict_is_refused_and_changes_nothing(taken, case):
    before = everything()

    with pytest.raises(NameConflict) as caught:
        CONFLICTS[case]()

    assert caught.value.name in {"q", "s", "t", "new"}
    assert everything() == before


@pytest.mark.parametrize("name", ["t", "s"])
def test_declared_queue_with_a_name_conflict_is_refused(taken, settings, name):
    settings.MQLITE = {"QUEUES": {name: {}}}
    before = everything()

    with pytest.raises(NameConflict):
        Queue.objects.sync()

    assert everything() == before


def test_names_are_case_sensitive(taken):
    Queue.objects.create_queue("T")
    subscribe("Q", "S")

    assert {queue.name for queue in Queue.objects.all()} == {"q", "s", "s2", "S", "T"}


def test_name_is_free_after_its_owner_was_deleted(taken):
    Subscription.objects.unsubscribe("s")
    Subscription.objects.unsubscribe("s2")
    Queue.objects.filter(name="q").delete()

    Queue.objects.create_queue("t")
    subscribe("q", "s")

    assert {queue.name: queue.kind for queue in Queue.objects.all()} == {
        "t": "queue",
        "s": "subscription",
    }


def test_repeated_creation_is_no_conflict(taken):
    before = everything()

    Queue.objects.create_queue("q")
    subscribe("t", "s")

    assert everything() == before


INVALID = [
    "", " ", "a b", "a/b", "-a", ".a", "_a", "..", "ä", "٣", "a\n", "\na", "a\0", "x" * 129,
    "a%s", "a'b", "*", None, 1, b"a",
]  # fmt: skip


@pytest.mark.parametrize("name", INVALID, ids=range(len(INVALID)))
def test_invalid_name_is_refused(clock, name):
    creations = [
        lambda: Queue.objects.create_queue(name),
        lambda: subscribe(name, "fine"),
        lambda: subscribe("fine", name),
    ]

    for create in creations:
        with pytest.raises(ValueError, match="Invalid queue name"):
            create()

    assert everything() == ([], [], [])


@pytest.mark.parametrize("name", ["a b", "", "x" * 129, 5, None])
def test_invalid_name_in_the_settings_is_refused(settings, name):
    settings.MQLITE = {"QUEUES": {name: {}}}

    with pytest.raises(ImproperlyConfigured, match="Invalid queue name"):
        get_settings()


@pytest.mark.parametrize("name", ["a", "0", "order-events", "a.b_c-D9", "x" * 128])
def test_valid_name_is_accepted(clock, db, name):
    Queue.objects.create_queue(name)

    assert enqueue(name, None).queue == name
