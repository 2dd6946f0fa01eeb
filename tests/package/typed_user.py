"""Code of a user, which mypy checks (test_types.py). It is never imported."""

from datetime import timedelta
from typing import Any, assert_type

from django.db import transaction

from django_mqlite import Draft, DuplicateConflict, Reject, enqueue, enqueue_many, handler, publish
from django_mqlite.conf import sqlite_options
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from django_mqlite.types import BulkCount, Lease, QueueStats

OPTIONS: dict[str, Any] = sqlite_options(synchronous="NORMAL")


@handler("emails", timeout=timedelta(minutes=1))
def send(message: Message) -> None:
    assert_type(message.data, Any)
    assert_type(message.lease, Lease | None)
    assert_type(message.duplicate, bool)
    raise Reject("UnknownCustomer", f"of message {message.pk}")


@handler("reports")
async def report(message: Message) -> str:
    return str(message.data)


def use() -> None:
    with transaction.atomic():
        assert_type(enqueue("emails", {"to": 7}, delay=60, priority=1), Message)
    many = enqueue_many("emails", [{"to": 7}, Draft({"to": 8}, priority=5)], subject="hello")
    assert_type(many, list[Message | DuplicateConflict])
    assert_type(publish("orders", b"x", properties={"a": "b"}), list[Message])

    for message in Message.objects.claim("emails", limit=10, lock_duration=30):
        assert_type(message, Message)
        assert_type(message.complete(), None)
        message.abandon(delay=timedelta(seconds=3), error=ValueError("x"))
    assert_type(Message.objects.complete_many([]), list[bool])

    assert_type(DeadLetter.objects.redrive([1, 2], rate=0.5), BulkCount)
    assert_type(DeadLetter.objects.peek("emails"), list[DeadLetter])
    assert_type(Queue.objects.create_queue("emails", lock_duration=60), Queue)
    assert_type(Queue.objects.stats(), list[QueueStats])
    assert_type(Subscription.objects.subscribe("orders", "stock"), Subscription)


def misuse() -> None:
    enqueue("emails", 1, pirority=5)  # type: ignore[call-arg]
    enqueue("emails", 1, visible_at="tomorrow")  # type: ignore[arg-type]
    enqueue(17, 1)  # type: ignore[arg-type]
    Message.objects.claim("emails", limit="10")  # type: ignore[arg-type]
    handler("emails", atomic="yes")  # type: ignore[arg-type]
    assert_type(send, int)  # type: ignore[assert-type]
