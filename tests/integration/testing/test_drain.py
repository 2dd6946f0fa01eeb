"""drain(): deliver due messages inline, inside and outside a TestCase."""

import asyncio
import os
import signal
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.test import TestCase

from django_mqlite import QueueNotFound, Reject, TransactionRefused, enqueue, handler
from django_mqlite import timing as clocks
from django_mqlite.models import Message, Queue
from django_mqlite.testing import FakeClock, TooManyDeliveries, drain
from tests.support import steps
from tests.support.steps import FLAVOURS, enqueue_flavour
from tests.support.verbs import state_of

pytestmark = pytest.mark.django_db
in_both_kinds_of_test = pytest.mark.parametrize(
    "transactional",
    [pytest.param(True, marks=pytest.mark.django_db(transaction=True)), False],
)


def make_group(message):
    Group.objects.create(name=message.data)


def group_names():
    return list(Group.objects.order_by("pk").values_list("name", flat=True))


def raise_error(error, message):
    raise error


fail = partial(raise_error, ValueError("never"))
reject = partial(raise_error, Reject("Broken"))
leave = partial(raise_error, SystemExit(3))


@in_both_kinds_of_test
def test_due_messages_are_handled_in_order(queue, transactional):
    handler("jobs")(make_group)
    first, second = enqueue("jobs", "a"), enqueue("jobs", "b")

    assert [message.pk for message in drain()] == [first.pk, second.pk]

    assert group_names() == ["a", "b"]
    assert state_of(first) == "gone"
    assert drain() == []


class DrainInTestCase(TestCase):
    """The same in Django's own class, which rolls its transaction back at the end."""

    def test_message_is_handled_on_the_connection_of_the_test(self):
        Queue.objects.create_queue("jobs")
        handler("jobs")(make_group)
        enqueue("jobs", "a")

        with FakeClock():
            drain()

        assert group_names() == ["a"]


@pytest.mark.parametrize(
    ("function", "options", "states"),
    [
        (fail, {}, ["scheduled", "scheduled", "dead_lettered"]),
        (fail, {"retries": False}, ["scheduled"]),
        (reject, {}, ["dead_lettered"]),
        (leave, {"retries": False}, ["scheduled"]),
    ],
    ids=["failure", "failure without retries", "rejection", "exit"],
)
def test_failure_is_retried_without_waiting(queue, clock, function, options, states):
    handler("jobs")(function)
    message = enqueue("jobs", None, max_delivery_count=3)
    start = clock.now

    assert [delivery.state for delivery in drain(**options)] == states

    assert state_of(message) == states[-1]
    assert (clock.now > start) == (len(states) > 1)  # moved to the retries


def test_drain_brings_its_own_clock_if_none_is_in_use(make_queue):
    make_queue("jobs", backoff_base=3_600)
    handler("jobs")(fail)
    real_clock = clocks.clock_in_use()
    enqueue("jobs", None, max_delivery_count=2)

    assert len(drain()) == 2
    assert clocks.clock_in_use() is real_clock


def test_scheduled_message_waits_until_the_clock_is_moved(queue, clock):
    handler("jobs")(make_group)
    enqueue("jobs", "later", delay=60)

    assert drain() == []
    clock.advance(timedelta(minutes=1))
    assert len(drain()) == 1

    assert group_names() == ["later"]


def test_raise_errors_raises_after_the_message_is_settled(queue, clock):
    handler("jobs")(reject)
    message = enqueue("jobs", None)

    with pytest.raises(Reject, match="Broken"):
        drain(raise_errors=True)

    assert state_of(message) == "dead_lettered"


def test_keyboard_interrupt_propagates(queue, clock):
    handler("jobs")(partial(raise_error, KeyboardInterrupt))
    enqueue("jobs", None)

    with pytest.raises(KeyboardInterrupt):
        drain()


@pytest.mark.parametrize(
    "transactional",
    [pytest.param(True, marks=pytest.mark.django_db(transaction=True)), False],
)
def test_handler_that_drains_delivers_the_other_messages(make_queue, clock, transactional):
    make_queue("outer")
    make_queue("inner")
    deliveries = []

    @handler("outer")
    def drain_others(message):
        Group.objects.create(name="before")
        deliveries.extend(drain())
        Group.objects.create(name="after")

    @handler("inner")
    def work(message):
        with pytest.raises(IntegrityError), transaction.atomic():
            Group.objects.create(name="before")
        Group.objects.create(name="inner")

    inner = enqueue("inner", None)
    outer = enqueue("outer", None)
    (delivery,) = drain("outer", raise_errors=True)

    assert deliveries == [inner]
    assert delivery == outer
    assert delivery.state == deliveries[0].state == "completed"
    names = list(Group.objects.order_by("pk").values_list("name", flat=True))
    assert names == ["before", "inner", "after"]


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda message: Message.objects.discard(message.pk), "dead_lettered"),
        (
            lambda message: Message.objects.release(message.pk, seen=message.lease_fingerprint),
            "active",
        ),
    ],
    ids=["discard", "release"],
)
def test_message_whose_lease_was_ended_has_the_state_of_its_row(queue, end, state):
    """The handler itself ends its lease, as an operator could."""

    @handler("jobs")
    def work(message):
        if message.delivery_count == 1:
            end(message)

    enqueue("jobs", None)

    assert drain(retries=False)[0].state == state


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: there is no fork on this system")
@pytest.mark.parametrize(("awaits", "code"), [(True, 1), (False, 0)])
def test_process_forked_by_an_async_handler_ends_in_the_handler(queue, clock, awaits, code):
    codes = []

    @handler("jobs")
    async def fork(message):
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            if awaits:
                await asyncio.sleep(0)
            return
        _, status = os.waitpid(pid, 0)  # noqa: ASYNC222 - at most until the alarm
        codes.append(os.waitstatus_to_exitcode(status))

    enqueue("jobs", None)
    drain(raise_errors=True)

    assert codes == [code]


def test_message_without_a_handler_fails_with_the_way_out(queue, clock):
    message = enqueue("jobs", None, max_delivery_count=1)

    drain("jobs")

    assert state_of(message) == "dead_lettered"
    (error,) = Message.objects.get(pk=message.pk).errors
    assert error["class"] == "django_mqlite.exceptions.NoHandler"
    assert "@handler('jobs')" in error["message"]


# Arguments


def test_named_queues_are_drained_in_their_order(make_queue, clock):
    handled = []
    for name in ("a", "b", "c"):
        make_queue(name)
        enqueue(name, None)
        handler(name)(lambda message: handled.append(message.queue))

    drain("c", "a")

    assert handled == ["c", "a"]


def test_unknown_queue_is_refused_before_any_delivery(queue):
    message = enqueue("jobs", None)

    with pytest.raises(QueueNotFound):
        drain("jobs", "jbos")

    assert state_of(message) == "active"


def test_drain_in_the_callers_transaction_is_refused(queue):
    with pytest.raises(TransactionRefused), transaction.atomic():
        drain("jobs")


@pytest.mark.parametrize("limit", [0, -1, True, "1", 1.5, None])
def test_limit_that_is_no_count_is_refused(queue, limit):
    with pytest.raises((TypeError, ValueError), match="limit must be"):
        drain(limit=limit)


def test_limit_is_the_number_of_deliveries_allowed(queue, clock):
    handler("jobs")(lambda message: None)
    enqueue("jobs", None)
    enqueue("jobs", None)

    assert len(drain(limit=2)) == 2


def enqueue_two():
    enqueue_flavour("plain")
    enqueue_flavour("plain")


def enqueue_again(flavour):
    """Enqueue a message whose delivery enqueues the next one."""
    steps.steps = partial(enqueue_flavour, flavour)
    enqueue_flavour(flavour)


def fail_often():
    steps.steps = partial(int, "no number")
    enqueue_flavour("plain")


def enqueue_in_group():
    Queue.objects.configure("default", ordering_mode="group_fifo")
    steps.steps = partial(enqueue, "default", None, group_id="a")
    handler("default")(steps.run_steps)
    enqueue("default", None, group_id="a")


ENDLESS = {
    "two messages": enqueue_two,
    "retries": fail_often,
    "group": enqueue_in_group,
    **{f"again: {flavour}": partial(enqueue_again, flavour) for flavour in FLAVOURS},
}


@pytest.mark.parametrize("enqueue_endless", ENDLESS.values(), ids=ENDLESS)
@in_both_kinds_of_test
def test_limit_leaves_no_lease_behind(
    make_queue, clock, monkeypatch, enqueue_endless, transactional
):
    monkeypatch.setattr(steps, "steps", list)
    make_queue("default", retain_completed=3_600)
    enqueue_endless()

    with pytest.raises(TooManyDeliveries, match="stopped after 1 deliveries"):
        drain("default", limit=1)

    assert not Message.objects.filter(state="locked").exists()
    assert sum(Message.objects.values_list("delivery_count", flat=True)) == 1
