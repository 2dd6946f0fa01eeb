"""Django's serialized_rollback restores the tables, which refer to each other."""

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

from django_mqlite.models import Message, Queue, Subscription

pytestmark = pytest.mark.django_db(transaction=True)


def rows():
    """Return all rows of the package's models."""
    models = apps.get_app_config("django_mqlite").get_models()
    return {model: list(model._base_manager.order_by("pk").values()) for model in models}


def empty_tables():
    """Empty the tables like a TransactionTestCase with serialized_rollback."""
    call_command("flush", verbosity=0, interactive=False, inhibit_post_migrate=True)


def enqueue_group():
    Queue.objects.create_queue("jobs", ordering_mode="group_fifo")
    Message.objects.enqueue("jobs", b"\x00\xff", group_id="a")
    Message.objects.enqueue("jobs", {"second": 2}, group_id="a", properties={"a": "b"})


def enqueue_with_window():
    Queue.objects.create_queue("jobs", dedup_window=3_600)
    Message.objects.enqueue("jobs", None, message_id="a", delay=60)


def settle_and_claim():
    Queue.objects.create_queue("jobs", max_delivery_count=1)
    for _ in range(3):
        Message.objects.enqueue("jobs", None)
    failed, *_ = Message.objects.claim("jobs", limit=2, attempt_id="a")
    failed.abandon(error=ValueError("a"))


def subscribe():
    Subscription.objects.subscribe("topic", "subscription")


@pytest.mark.parametrize(
    "fill",
    [enqueue_group, enqueue_with_window, settle_and_claim, subscribe],
    ids=lambda fill: fill.__name__,
)
def test_restored_tables_have_the_same_rows(fill):
    fill()
    before = rows()
    saved = connection.creation.serialize_db_to_string()
    empty_tables()

    connection.creation.deserialize_db_from_string(saved)

    assert rows() == before


def test_sync_creates_declared_queues_in_empty_tables(settings):
    settings.MQLITE = {"QUEUES": {"mails": {}}}
    empty_tables()
    assert not Queue.objects.exists()

    Queue.objects.sync()

    assert list(Queue.objects.values_list("name", flat=True)) == ["mails"]
