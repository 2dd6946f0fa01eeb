"""Rows become instances without Django's help, and nobody can tell."""

import copy
import pickle

import pytest
from django.db.models.signals import post_init, pre_init
from django.test.utils import isolate_apps

from django_mqlite.models import Message
from tests.support.verbs import enqueue_and_claim


@pytest.fixture
def claimed(queue):
    return enqueue_and_claim("jobs", {"a": 1}, properties={"b": "c"})


@pytest.fixture
def listened():
    """Somebody listens to instances, so Django builds them."""

    def listen(**facts):
        pass

    post_init.connect(listen, sender=Message)
    yield
    post_init.disconnect(listen, sender=Message)


def agrees_with_what_is_read(message):
    read = Message.objects.get(pk=message.pk)
    later = message.get_deferred_fields()

    assert {name: vars(message)[name] for name in set(vars(read)) - later - {"_state"}} == {
        name: value for name, value in vars(read).items() if name not in {"_state", *later}
    }
    assert (message._state.db, message._state.adding) == (read._state.db, read._state.adding)
    assert [getattr(message, name) for name in later] == [getattr(read, name) for name in later]


def test_a_claimed_instance_has_what_one_that_was_read_has(claimed):
    agrees_with_what_is_read(claimed)


@pytest.mark.usefixtures("listened")
def test_so_has_one_that_django_builds(claimed):
    agrees_with_what_is_read(claimed)


def everything(queue):
    """A message of which much is known."""
    return Message.objects.enqueue(
        str(queue), {"a": 1}, properties={"b": "c"}, group_id="g", subject="s", delay=60, ttl=90,
        message_id="m", correlation_id="k", reply_to="jobs", max_delivery_count=3,
    )  # fmt: skip


def test_an_enqueued_instance_has_what_one_that_was_read_has(queue):
    agrees_with_what_is_read(everything(queue))


@pytest.mark.usefixtures("listened")
def test_so_has_an_enqueued_one_that_django_builds(queue):
    agrees_with_what_is_read(everything(queue))


def test_no_two_instances_share_their_state(queue):
    Message.objects.enqueue_many("jobs", [1, 2])
    first, second = Message.objects.claim("jobs", limit=2)

    first._state.db = "another"

    assert second._state.db == "default"


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_an_instance_can_be_copied_with_its_lease(claimed, copied):
    twin = copied(claimed)

    assert (twin, twin.lease) == (claimed, claimed.lease)
    twin.complete()


@pytest.mark.parametrize("signal", [pre_init, post_init])
@pytest.mark.parametrize("sender", [Message, None])
def test_who_listens_to_instances_hears_of_each(queue, signal, sender):
    heard = []

    def listen(**facts):
        heard.append(facts["sender"])

    signal.connect(listen, sender=sender)
    try:
        enqueue_and_claim("jobs")
    finally:
        signal.disconnect(listen, sender=sender)

    assert heard == [Message, Message]


@isolate_apps("django_mqlite")
def test_a_proxy_that_builds_its_own_instances_does(queue):
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
            one = super().from_db(*row, **named)
            one.built = True
            return one

    for proxy in (ByInit, ByFromDb):
        Message.objects.enqueue("jobs", 1)
        (message,) = proxy.objects.claim("jobs")
        assert (type(message), message.built) == (proxy, True)
        assert message.lease is not None
