"""drain(): what is due is worked off inline, inside a TestCase and outside of one."""

import asyncio
import os
import signal
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase

from django_mqlite import QueueNotFound, Reject, TransactionRefused, enqueue, handler, handlers
from django_mqlite import timing as clock
from django_mqlite.models import Message, Queue
from django_mqlite.testing import FakeClock, TooManyDeliveries, drain
from tests.support import steps
from tests.support.steps import FLAVOURS, enqueue_flavour
from tests.support.verbs import state_of


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch):
    monkeypatch.setattr(handlers, "_handlers", {})


@pytest.fixture
def make_group(queue):
    """Has the queue's handler make a group of the message's data."""

    @handler("jobs")
    def make(message):
        Group.objects.create(name=message.data)


def names():
    return list(Group.objects.order_by("pk").values_list("name", flat=True))


pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("make_group")
@pytest.mark.parametrize(
    "transactional",
    [pytest.param(True, marks=pytest.mark.django_db(transaction=True)), False],
)
def test_what_is_due_is_handled_in_order(transactional):
    first, second = enqueue("jobs", "a"), enqueue("jobs", "b")

    assert [message.pk for message in drain()] == [first.pk, second.pk]

    assert names() == ["a", "b"]
    assert state_of(first) == "gone"
    assert drain() == []


def test_the_queues_named_are_drained_in_their_order_and_no_others(make_queue, clock):
    handled = []
    for name in ("a", "b", "c"):
        make_queue(name)
        enqueue(name, None)
        handler(name)(lambda message: handled.append(message.queue))

    drain("c", "a")

    assert handled == ["c", "a"]


def test_a_queue_that_is_not_there_is_refused_before_any_delivery(queue):
    message = enqueue("jobs", None)

    with pytest.raises(QueueNotFound):
        drain("jobs", "jbos")

    assert state_of(message) == "active"


def test_a_failure_is_followed_to_its_end_without_waiting(queue, clock):
    @handler("jobs")
    def fail(message):
        raise ValueError("never")

    message = enqueue("jobs", None, max_delivery_count=3)
    begun = clock.now

    deliveries = drain()

    assert [d.state for d in deliveries] == ["scheduled", "scheduled", "dead_lettered"]
    assert state_of(message) == "dead_lettered"
    assert clock.now > begun  # it has been moved to the retries


def test_without_retries_a_failed_message_rests(queue, clock):
    @handler("jobs")
    def fail(message):
        raise ValueError("once")

    message = enqueue("jobs", None)

    drain(retries=False)

    assert state_of(message) == "scheduled"


def test_a_clock_of_its_own_serves_where_none_is_in_use(make_queue):
    make_queue("jobs", backoff_base=3_600)
    real = clock.clock_in_use()

    @handler("jobs")
    def fail(message):
        raise ValueError("never")

    enqueue("jobs", None, max_delivery_count=2)

    assert len(drain()) == 2
    assert clock.clock_in_use() is real


@pytest.mark.usefixtures("make_group")
def test_what_is_scheduled_waits_until_the_clock_is_moved(clock):
    enqueue("jobs", "later", delay=60)

    assert drain() == []
    clock.advance(timedelta(minutes=1))
    assert len(drain()) == 1

    assert names() == ["later"]


def test_an_error_is_raised_if_that_is_asked_for_after_it_has_been_settled(queue, clock):
    @handler("jobs")
    def fail(message):
        raise Reject("Broken")

    message = enqueue("jobs", None)

    with pytest.raises(Reject, match="Broken"):
        drain(raise_errors=True)

    assert state_of(message) == "dead_lettered"


def enqueue_two():
    enqueue_flavour("plain")
    enqueue_flavour("plain")


def enqueue_again(flavour):
    """A delivery that enqueues the next one."""
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


NEVER_DONE = {
    "two messages": enqueue_two,
    "retries": fail_often,
    "group": enqueue_in_group,
    **{f"again: {flavour}": partial(enqueue_again, flavour) for flavour in FLAVOURS},
}


@pytest.mark.parametrize("enqueue_endless", NEVER_DONE.values(), ids=NEVER_DONE)
@pytest.mark.parametrize(
    "transactional",
    [pytest.param(True, marks=pytest.mark.django_db(transaction=True)), False],
)
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


def test_limit_allows_exactly_so_many_deliveries(queue, clock):
    handler("jobs")(lambda message: None)
    enqueue("jobs", None)
    enqueue("jobs", None)

    assert len(drain(limit=2)) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_an_atomic_handler_is_so_here_as_well(queue, clock, fails):
    @handler("jobs", atomic=True)
    def work(message):
        Group.objects.create(name="effect")
        if fails:
            raise ValueError("undone")

    message = enqueue("jobs", None, max_delivery_count=1)

    drain()

    assert names() == ([] if fails else ["effect"])
    assert state_of(message) == ("dead_lettered" if fails else "gone")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: there is no fork on this system")
@pytest.mark.parametrize(("awaits", "code"), [(True, 1), (False, 0)])
def test_process_that_an_async_handler_forks_ends_in_it(queue, clock, awaits, code):
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


def test_an_async_handler_is_run_to_its_end(queue, clock):
    handled = []

    @handler("jobs")
    async def work(message):
        handled.append(message.data)

    enqueue("jobs", "x")

    drain()

    assert handled == ["x"]


def test_a_message_that_nothing_handles_becomes_a_dead_letter_that_says_so(queue, clock):
    message = enqueue("jobs", None, max_delivery_count=1)

    drain("jobs")

    assert state_of(message) == "dead_lettered"
    (error,) = Message.objects.get(pk=message.pk).errors
    assert error["class"] == "django_mqlite.exceptions.NoHandler"
    assert "@handler('jobs')" in error["message"]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_whatever_a_handler_raises_is_an_answer(queue, clock, error):
    @handler("jobs")
    def leave(message):
        raise error

    message = enqueue("jobs", None, max_delivery_count=1)

    drain()

    assert state_of(message) == "dead_lettered"


def test_an_interrupt_ends_the_test_and_not_the_delivery(queue, clock):
    @handler("jobs")
    def interrupt(message):
        raise KeyboardInterrupt

    enqueue("jobs", None)

    with pytest.raises(KeyboardInterrupt):
        drain()


def test_in_the_callers_own_transaction_it_is_refused(queue):
    with pytest.raises(TransactionRefused), transaction.atomic():
        drain("jobs")


class DrainInATestCase(TestCase):
    """The same in Django's own class, whose transaction is rolled back at the end."""

    def test_a_message_is_handled_on_the_connection_of_the_test(self):
        Queue.objects.create_queue("jobs")
        handler("jobs")(lambda message: Group.objects.create(name=message.data))
        enqueue("jobs", "a")

        with FakeClock():
            drain()

        assert names() == ["a"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_no_deliveries_is_refused(queue, limit):
    with pytest.raises(ValueError, match="limit"):
        drain(limit=limit)
