"""The timeout of a handler in drain(): the failure that a worker records, inside TestCase too."""

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group

from django_mqlite import Reject, enqueue, handler
from django_mqlite.models import DeadLetter, Message
from django_mqlite.testing import drain
from tests.support.steps import ASYNC_FLAVOURS, FLAVOURS, enqueue_flavour, run_worker
from tests.support.verbs import state_of

from .conftest import DRAINS, WORKER

OVERDUE = ("builtins.TimeoutError", "the handler ran longer than its timeout, {:g} s")


@pytest.fixture(params=DRAINS)
def run(request):
    return request.param


@pytest.fixture
def end_of(monkeypatch, make_queue):
    """Deliver a message once; return the recorded errors and the names that were written."""

    def deliver(run, flavour, steps, timeout):
        monkeypatch.setattr("tests.support.steps.steps", steps)
        lease = 300 if flavour == "atomic" else 30  # which nothing renews in a transaction
        make_queue("default", max_delivery_count=1, lock_duration=lease)
        enqueue_flavour(flavour, timeout=timeout)
        run()
        assert not Message.objects.exclude(state__in=["completed", "dead_lettered"]).exists()
        errors = [error for dead in DeadLetter.objects.all() for error in dead.errors]
        names = "".join(Group.objects.order_by("name").values_list("name", flat=True))
        return [(error["class"], error["message"]) for error in errors], names

    return deliver


def make(name):
    Group.objects.create(name=name)


@pytest.mark.rule("14.6")
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    ("seconds", "raised", "fails"),
    [(59, None, False), (61, None, True), (61, Reject("Broken"), True), (61, SystemExit(3), True)],
    ids=["in time", "returns late", "rejects late", "exits late"],
)
def test_late_handler_fails_at_its_end(run, end_of, clock, flavour, seconds, raised, fails):
    def steps():
        make("a")
        clock.advance(seconds)
        if raised:
            raise raised

    errors, names = end_of(run, flavour, steps, 60)

    assert [error for error, _ in errors] == ([OVERDUE[0]] if fails else [])
    assert names == ("" if fails and flavour == "atomic" else "a")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("raised", [None, Reject("Broken"), SystemExit(3)], ids=repr)
def test_late_handler_fails_in_worker_while_its_lease_lasts(end_of, clock, flavour, raised):
    def steps():
        make("a")
        clock.advance(6)
        if raised:
            raise raised

    errors, names = end_of(run_worker, flavour, steps, 5)

    assert errors == [(OVERDUE[0], OVERDUE[1].format(5))]
    assert names == ("" if flavour == "atomic" else "a")


@pytest.mark.rule("14.2")
@pytest.mark.parametrize("flavour", ASYNC_FLAVOURS)
@pytest.mark.parametrize(("moved", "timeout"), [(61, 60), (0, 0.3)], ids=["clock", "real time"])
def test_coroutine_is_cancelled_at_its_timeout(run, end_of, clock, flavour, moved, timeout):
    async def steps():
        await sync_to_async(make)("a")
        clock.advance(moved)
        await asyncio.sleep(3_600)

    errors, names = end_of(run, flavour, steps, timeout)

    assert (errors, names) == ([(OVERDUE[0], OVERDUE[1].format(timeout))], "a")


async def wait_for_ever():
    await asyncio.sleep(3_600)


async def clean_up():
    try:
        await asyncio.sleep(3_600)
    finally:
        await sync_to_async(make)("cleaned up")


async def swallow_cancellation():
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        await sync_to_async(make)("swallowed")


async def replace_cancellation():
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        raise ValueError("cancelled") from None


async def cancel_itself():
    raise asyncio.CancelledError("by itself")


CANCELLED = [(OVERDUE[0], OVERDUE[1].format(0.3))]
CANCELLATIONS = {
    wait_for_ever: (CANCELLED, ""),
    clean_up: (CANCELLED, "cleaned up"),
    swallow_cancellation: ([], "swallowed"),
    replace_cancellation: ([("builtins.ValueError", "cancelled")], ""),
    cancel_itself: ([("asyncio.exceptions.CancelledError", "by itself")], ""),
}


@pytest.mark.parametrize("flavour", ASYNC_FLAVOURS)
@pytest.mark.parametrize("steps", CANCELLATIONS, ids=lambda steps: steps.__name__)
@pytest.mark.parametrize("run", [WORKER, *DRAINS])
def test_cancelled_coroutine_ends_as_in_worker(run, end_of, flavour, steps):
    assert end_of(run, flavour, steps, 0.3) == CANCELLATIONS[steps]


@pytest.mark.parametrize("flavour", ["plain", "atomic", "async"])
def test_message_settled_before_timeout_stays_so(run, queue, clock, flavour):
    def settle(message):
        message.complete()
        clock.advance(61)

    async def settle_async(message):
        await sync_to_async(settle)(message)

    handle = settle_async if flavour == "async" else settle
    handler("jobs", atomic=flavour == "atomic", timeout=60)(handle)
    message = enqueue("jobs", None)

    (delivery,) = drain(raise_errors=True)

    assert (delivery.state, state_of(message)) == ("completed", "gone")


@pytest.mark.parametrize(
    ("atomic", "state"), [(False, "gone"), (True, "dead_lettered")], ids=["renewed", "atomic"]
)
def test_lease_is_renewed_unless_handler_is_atomic(run, queue, clock, atomic, state):
    handler("jobs", atomic=atomic)(lambda message: clock.advance(31))
    message = enqueue("jobs", None, max_delivery_count=1)

    drain()

    assert state_of(message) == state


def test_overdue_message_is_retried(run, queue, clock):
    delays = [61, 0]

    @handler("jobs", timeout=60)
    def take_long_once(message):
        clock.advance(delays.pop(0))

    enqueue("jobs", None)

    assert [delivery.state for delivery in drain()] == ["scheduled", "completed"]


def test_interrupt_of_late_handler_ends_the_test(run, queue, clock):
    @handler("jobs", timeout=60)
    def interrupt(message):
        clock.advance(61)
        raise KeyboardInterrupt

    enqueue("jobs", None)

    with pytest.raises(KeyboardInterrupt):
        drain()
