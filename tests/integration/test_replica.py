"""With a router that reads from a replica, verbs read where they have written."""

import pytest

from django_mqlite import enqueue, enqueue_many, publish
from django_mqlite.doctor import health
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from tests.support.engines import database
from tests.support.files import create_database


class Router:
    """Route writes to the primary, and reads to a replica that never catches up."""

    def db_for_read(self, model, **hints):
        return "replica"

    def db_for_write(self, model, **hints):
        return "primary"


@pytest.fixture(autouse=True)
def replica(tmp_path, settings, clock, django_db_blocker):
    settings.DATABASE_ROUTERS = [Router()]
    paths = {alias: create_database(tmp_path / alias) for alias in ("primary", "replica")}
    with (
        django_db_blocker.unblock(),
        database("primary", paths["primary"]),
        database("replica", paths["replica"]),
    ):
        yield
        assert not Message.objects.using("replica").exists()
        assert not Queue.objects.using("replica").exists()


def redriven():
    enqueue("jobs", 1)
    (message,) = Message.objects.claim("jobs")
    message.reject("Broken")
    (dead,) = DeadLetter.objects.peek("jobs")
    return DeadLetter.objects.redrive([dead.pk])


def duplicate_state():
    Queue.objects.configure("jobs", dedup_window=60)
    enqueue("jobs", 1)
    return enqueue("jobs", 1).state


def published():
    Subscription.objects.subscribe("orders", "stock")
    return [message.queue for message in publish("orders", 1)]


CASES = {
    "create_queue": (lambda: Queue.objects.create_queue("mails").name, "mails"),
    "configure": (lambda: Queue.objects.configure("jobs", lock_duration=7).lock_duration_ms, 7_000),
    "named": (lambda: Queue.objects.named("jobs").pk, "jobs"),
    "pause": (lambda: Queue.objects.named("jobs").pause(), True),
    "stats": (lambda: [stats.queue for stats in Queue.objects.stats()], ["jobs"]),
    "overview": (lambda: [row.stats.queue for row in Queue.objects.overview()], ["jobs"]),
    "subscribe": (lambda: Subscription.objects.subscribe("orders", "stock").topic, "orders"),
    "publish": (published, ["stock"]),
    "deferred column": (lambda: enqueue("jobs", 1).blocked, False),
    "deferred column of many": (
        lambda: [message.blocked for message in enqueue_many("jobs", [1])],
        [False],
    ),
    "duplicate": (duplicate_state, "active"),
    "get": (lambda: Message.objects.get(pk=enqueue("jobs", 1).pk).data, 1),
    "explain": (lambda: enqueue("jobs", 1).explain().code, "no_handler"),
    "redrive": (redriven, 1),
    "health": (lambda: health("primary", max_age_ms=1).healthy, True),
}


@pytest.mark.parametrize(("verb", "expected"), CASES.values(), ids=CASES)
def test_written_rows_are_read_from_the_same_database(verb, expected):
    Queue.objects.create_queue("jobs")

    assert verb() == expected


def test_row_is_refreshed_from_its_own_database():
    queue = Queue.objects.create_queue("jobs")
    subscription = Subscription.objects.subscribe("orders", "stock")
    message = enqueue("jobs", 1)
    Message.objects.claim("jobs")
    Queue.objects.configure("jobs", lock_duration=7)
    Subscription.objects.subscribe("orders", "stock", filter="subject == 'placed'")

    for row in (queue, subscription, message):
        row.refresh_from_db()

    assert queue.lock_duration_ms == 7_000
    assert subscription.filter == "subject == 'placed'"
    assert message.state == "locked"


def test_replica_is_read_by_its_alias():
    Queue.objects.create_queue("jobs")
    enqueue("jobs", 1)

    assert not Message.objects.using("replica").exists()
    assert not Message.objects.db_manager("replica").exists()
