"""Rows are written by verbs: the ORM refuses to write them and names the verb."""

import pytest
from django.db import transaction

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from tests.support.verbs import row_of

pytestmark = pytest.mark.django_db

NEW = {
    "message": (Message, {"queue": "jobs", "body": b"", "group_id": "g"}, "enqueue"),
    "dead letter": (DeadLetter, {"queue": "jobs", "body": b""}, "enqueue"),
    "queue": (Queue, {"name": "another"}, "create_queue"),
    "subscription": (Subscription, {"subscription": "jobs", "topic": "orders"}, "subscribe"),
}

WAYS = {
    "create": lambda model, values: model.objects.create(**values),
    "bulk_create": lambda model, values: model.objects.bulk_create([model(**values)]),
    "get_or_create": lambda model, values: model.objects.get_or_create(**values),
    "update_or_create": lambda model, values: model.objects.update_or_create(**values),
    "save": lambda model, values: model(**values).save(),
    "on a query": lambda model, values: model.objects.using("default").create(**values),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("new", NEW)
def test_new_row_is_refused_with_the_verb_to_use(queue, new, way):
    model, values, verb = NEW[new]
    before = model.objects.count()

    with pytest.raises(TypeError, match=rf"\.{verb}\("):
        WAYS[way](model, values)

    assert model.objects.count() == before


CHANGES = {
    "state": (Message, {"state": "active"}, "redrive"),
    "blocked": (Message, {"blocked": False}, "enqueue"),
    "lease": (Message, {"lock_token": None}, "claim"),
    "time": (Message, {"visible_at": None}, "run_now"),
    "body": (Message, {"body": b"x"}, "enqueue"),
    "content type": (Message, {"content_type": "text/plain"}, "enqueue"),
    "properties": (Message, {"properties": 5}, "enqueue"),
    "message id": (Message, {"message_id": "x"}, "enqueue"),
    "delivery limit": (Message, {"max_delivery_count": -1}, "enqueue"),
    "id": (Message, {"pk": 7}, "enqueue"),
    "queue of a message": (Message, {"queue": "another"}, "redrive"),
    "order": (Queue, {"ordering_mode": "strict_fifo"}, "configure"),
    "lock duration": (Queue, {"lock_duration_ms": -1}, "configure"),
    "pause": (Queue, {"paused": True}, "pause"),
    "filter": (Subscription, {"filter": "nonsense("}, "subscribe"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_update_of_a_guarded_column_is_refused_with_the_verb_to_use(queue, change):
    model, values, verb = CHANGES[change]

    with pytest.raises(TypeError, match=rf"{verb}\("):
        model.objects.update(**values)


def test_bulk_update_and_save_of_a_guarded_column_are_refused(queue):
    message = enqueue("jobs", 1)
    before = row_of(message)

    for way in (
        lambda: Message.objects.bulk_update([message], ["state"]),
        lambda: message.save(update_fields=["state"]),
        message.save,
        queue.save,
    ):
        with pytest.raises(TypeError, match="Use"), transaction.atomic():
            way()

    assert row_of(message) == before


def test_columns_without_an_effect_can_be_changed(queue):
    message = enqueue("jobs", 1)

    assert Message.objects.filter(pk=message.pk).update(subject="changed") == 1
    message.correlation_id = "c"
    message.save(update_fields=["correlation_id"])

    assert Message.objects.values_list("subject", "correlation_id").get() == ("changed", "c")


FREE = {
    Message: {"correlation_id", "reply_to", "subject"},
    DeadLetter: {"correlation_id", "reply_to", "subject"},
    Queue: {"created_at", "updated_at"},
    Subscription: {"created_at"},
}


@pytest.mark.parametrize("model", FREE)
def test_columns_that_a_rule_uses_are_guarded(model):
    for field in model._meta.concrete_fields:
        if field.name not in FREE[model]:
            with pytest.raises(TypeError, match=f"'{field.name}' would bypass"):
                model.objects.update(**{field.name: 1})
