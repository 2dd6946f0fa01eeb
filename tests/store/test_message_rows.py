"""Rows become instances without Django, and equal the instances that Django reads."""

import copy
import pickle
from contextlib import contextmanager, nullcontext

import pytest
from django.db.models.signals import post_init, pre_init
from django.test.utils import isolate_apps

from django_mqlite.models import Message
from tests.support.verbs import claim_one, enqueue_and_claim

pytestmark = pytest.mark.django_db


@contextmanager
def listening(signal, sender):
    """Connect a receiver, so that Django builds the instances; yield the senders."""
    senders = []

    def receive(**facts):
        senders.append(facts["sender"])

    signal.connect(receive, sender=sender)
    try:
        yield senders
    finally:
        signal.disconnect(receive, sender=sender)


OPTIONS = {
    "properties": {"b": "c"}, "group_id": "g", "subject": "s", "ttl": 90, "message_id": "m",
    "correlation_id": "k", "reply_to": "jobs", "max_delivery_count": 3,
}  # fmt: skip


def enqueue(queue, **options):
    return Message.objects.enqueue(str(queue), {"a": 1}, **OPTIONS, **options)


def enqueue_behind_a_head(queue):
    enqueue(queue)
    return enqueue(queue)


def claim(queue):
    enqueue(queue)
    return claim_one(queue, worker="w")


@pytest.mark.parametrize(
    "make",
    [claim, lambda queue: enqueue(queue, delay=60), enqueue_behind_a_head],
    ids=["claimed", "enqueued", "blocked"],
)
@pytest.mark.parametrize("django_builds", [False, True])
def test_returned_instance_equals_the_stored_one(queue, make, django_builds):
    with listening(post_init, Message) if django_builds else nullcontext():
        message = make(queue)

    stored = Message.objects.get(pk=message.pk)
    for field in Message._meta.concrete_fields:
        assert getattr(message, field.name) == getattr(stored, field.name), field.name
    assert (message._state.db, message._state.adding) == (stored._state.db, stored._state.adding)
    assert set(vars(stored)) - set(vars(message)) == message.get_deferred_fields()


def test_instances_do_not_share_their_state(queue):
    Message.objects.enqueue_many("jobs", [1, 2])
    first, second = Message.objects.claim("jobs", limit=2)

    first._state.db = "another"

    assert second._state.db == "default"


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copied_instance_has_the_lease(queue, copied):
    message = claim(queue)

    twin = copied(message)

    assert (twin, twin.lease) == (message, message.lease)
    twin.complete()


@pytest.mark.parametrize("signal", [pre_init, post_init])
@pytest.mark.parametrize("sender", [Message, None])
def test_init_signals_are_sent_for_each_instance(queue, signal, sender):
    with listening(signal, sender) as senders:
        enqueue_and_claim("jobs")

    assert senders == [Message, Message]


@isolate_apps("django_mqlite")
def test_proxy_with_its_own_init_or_from_db_is_used(queue):
    class ByInit(Message):
        class Meta:
            proxy = True
            app_label = "django_mqlite"

        def __init__(self, *values, **named):
            super().__init__(*values, **named)
            self.built = True

    class ByFromDb(Message):
        class Meta:
            proxy = True
            app_label = "django_mqlite"

        @classmethod
        def from_db(cls, *row, **named):
            message = super().from_db(*row, **named)
            message.built = True
            return message

    for proxy in (ByInit, ByFromDb):
        Message.objects.enqueue("jobs", 1)
        (message,) = proxy.objects.claim("jobs")
        assert (type(message), message.built) == (proxy, True)
        assert message.lease is not None
