"""Deleting a queue never deletes work by accident."""

import pytest

from django_mqlite import LockLost, QueueNotDeletable, QueueNotFound, enqueue
from django_mqlite.models import Message, Queue, Subscription
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim

pytestmark = pytest.mark.rule("1.11")


def test_queue_without_messages_is_deleted(queue):
    assert Queue.objects.delete_queue("jobs")

    with pytest.raises(QueueNotFound):
        enqueue("jobs", 1)
    assert not Queue.objects.delete_queue("jobs")


def test_completed_messages_are_deleted_with_their_queue(make_queue, clock):
    make_queue("kept", retain_completed=60)
    enqueue_and_claim("kept").complete()

    assert Queue.objects.delete_queue("kept")
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    "prepare",
    [
        lambda: enqueue("jobs", 1),
        lambda: enqueue("jobs", 1, delay=60),
        lambda: enqueue_and_claim("jobs"),
        lambda: enqueue_and_claim("jobs").defer(),
        lambda: dead_letter("jobs"),
    ],
    ids=["active", "scheduled", "locked", "deferred", "dead"],
)
def test_queue_with_work_is_deleted_only_with_everything(queue, make_queue, prepare):
    make_queue("other")
    enqueue("other", 1)
    prepare()

    with pytest.raises(QueueNotDeletable, match="pass everything=True"):
        Queue.objects.delete_queue("jobs")
    assert Message.objects.filter(queue="jobs").exists()

    assert Queue.objects.delete_queue("jobs", everything=True)
    assert list(Message.objects.values_list("queue", flat=True)) == ["other"]


def test_handler_of_a_deleted_queue_loses_its_lease(queue):
    message = enqueue_and_claim("jobs")

    Queue.objects.delete_queue("jobs", everything=True)

    with pytest.raises(LockLost):
        message.complete()


def test_queue_of_a_subscription_is_not_deleted(queue):
    Subscription.objects.subscribe("prices", "stock")

    with pytest.raises(QueueNotDeletable, match=r"use unsubscribe\(\)"):
        Queue.objects.delete_queue("stock", everything=True)

    assert Queue.objects.filter(name="stock").exists()


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("MQLITE", {"QUEUES": {"jobs": {}}}, "remove the declaration first"),
        (
            "TASKS",
            {
                "default": {
                    "BACKEND": "django_mqlite.task_backend.MqliteBackend",
                    "QUEUES": ["jobs"],
                }
            },
            "remove it there first",
        ),
    ],
    ids=["MQLITE", "TASKS"],
)
def test_declared_queue_is_not_deleted(queue, settings, setting, value, advice):
    setattr(settings, setting, value)

    with pytest.raises(QueueNotDeletable, match=advice):
        Queue.objects.delete_queue("jobs")

    enqueue("jobs", 1)
    assert claim_one("jobs").data == 1
