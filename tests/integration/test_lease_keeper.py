"""Leases of running handlers are renewed at a third of their length."""

import logging
from datetime import timedelta
from threading import Event
from types import SimpleNamespace

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.handlers import Handler
from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
from django_mqlite.worker import leases
from django_mqlite.worker.executor import DeliveryResult
from django_mqlite.worker.leases import (
    LONGEST_CHECK_INTERVAL,
    SHORTEST_CHECK_INTERVAL,
    LeaseRenewer,
    SupervisedLeases,
)
from django_mqlite.worker.pool import Pool
from tests.support.verbs import enqueue_and_claim, reap, row_of, state_of
from tests.support.waiting import wait_until

LEASE = timedelta(seconds=30)


@pytest.fixture
def running():
    """What the pool runs; the test fills it."""
    return []


@pytest.fixture
def keeper(running):
    return LeaseRenewer("default", SimpleNamespace(running=running, cancel=lambda *_: False))


@pytest.fixture
def message(queue, running):
    claimed = enqueue_and_claim(queue)
    running.append(claimed)
    return claimed


def ended(message) -> DeliveryResult:
    return DeliveryResult(message=message, error=None)


def renewals(keeper) -> int:
    """How many statements one look renews with."""
    with CaptureQueriesContext(
        connection,
    ) as captured:
        keeper.poll()
    return sum("locked_until = max(" in query["sql"] for query in captured)


def test_a_fresh_lease_is_left_alone_and_looked_at_soon(keeper, message, clock):
    before = row_of(message)
    clock.advance(LEASE / 3 - timedelta(milliseconds=1))

    with CaptureQueriesContext(connection) as captured:
        rest = keeper.poll()

    assert list(captured) == []
    assert row_of(message) == before
    assert rest == SHORTEST_CHECK_INTERVAL


def test_a_message_that_is_started_ends_the_rest_of_an_idle_keeper(message, monkeypatch):
    monkeypatch.setattr(leases, "IDLE_CHECK_INTERVAL", 3600)
    looked = Event()
    pool = Pool(ended, threads=1, on_finished=lambda: None)
    keeper = LeaseRenewer("default", pool)
    monkeypatch.setattr(keeper, "poll", lambda: looked.set() or 0)
    keeper.start()
    wait_until(looked.is_set, "the keeper to look")
    wait_until(lambda: not pool.busy.is_set(), "the keeper to rest")
    looked.clear()

    pool.start(message)

    wait_until(looked.is_set, "the keeper to look again")
    keeper.stop()
    assert not keeper._thread.is_alive()


def test_an_idle_keeper_ends_at_once(monkeypatch):
    monkeypatch.setattr(leases, "IDLE_CHECK_INTERVAL", 3600)
    pool = Pool(lambda message: None, threads=0, on_finished=lambda: None)
    keeper = LeaseRenewer("default", pool)
    keeper.start()

    keeper.stop()

    assert not keeper._thread.is_alive()


def test_lease_keeper_without_messages_only_waits(keeper):
    assert keeper.poll() == LONGEST_CHECK_INTERVAL


def test_lease_is_renewed_after_a_third_of_its_duration(keeper, message, clock):
    clock.advance(LEASE / 3)

    rest = keeper.poll()

    assert row_of(message)["locked_until"] == clock.now + LEASE
    assert rest == LONGEST_CHECK_INTERVAL


def test_a_lease_that_is_kept_outlives_any_handler(keeper, message, clock):
    for _ in range(100):
        clock.advance(LEASE / 3)
        keeper.poll()

    assert reap() == []
    message.complete()
    assert state_of(message) == "gone"


def test_when_the_delivery_began_stays_known(keeper, message, clock):
    began = message.locked_at
    clock.advance(LEASE / 3)

    keeper.poll()
    clock.advance(1)
    message.abandon(error="too hard")

    assert message.locked_at == began
    (error,) = row_of(message)["errors"]
    assert error["started_at"] == round(began.timestamp() * 1000)


def test_all_that_is_due_is_renewed_in_one_statement(keeper, message, queue, running, clock):
    running += [enqueue_and_claim(queue) for _ in range(20)]
    clock.advance(LEASE / 3)

    assert renewals(keeper) == 1
    assert {row_of(message)["locked_until"] for message in running} == {clock.now + LEASE}


def test_only_what_is_due_is_renewed(keeper, message, queue, running, clock):
    clock.advance(LEASE / 3)
    fresh = enqueue_and_claim(queue)
    running.append(fresh)
    before = row_of(fresh)
    clock.advance(1)

    keeper.poll()

    assert row_of(message)["locked_until"] == clock.now + LEASE
    assert row_of(fresh) == before


def test_a_lost_lease_is_told_once_and_not_tried_again(keeper, message, clock, caplog):
    clock.advance(LEASE)

    assert renewals(keeper) == 1
    assert renewals(keeper) == 0

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (record.queue, record.id) == ("jobs", message.pk)


def test_coroutine_of_a_lost_lease_is_cancelled_because_of_its_renewal(running, message, clock):
    cancelled = {}
    pool = SimpleNamespace(running=running, cancel=cancelled.__setitem__)
    clock.advance(LEASE)

    LeaseRenewer("default", pool).poll()

    assert cancelled[message].verb == "renew"


def test_a_lost_lease_does_not_keep_the_others_from_being_renewed(
    keeper, message, queue, running, clock
):
    clock.advance(LEASE)
    kept = enqueue_and_claim(queue)
    running.append(kept)
    keeper.poll()

    clock.advance(LEASE / 3)
    keeper.poll()

    assert row_of(kept)["locked_until"] == clock.now + LEASE


def test_the_same_message_under_a_new_lease_is_renewed_again(keeper, message, running, clock):
    clock.advance(LEASE)
    keeper.poll()
    reap()
    (again,) = Message.objects.claim("jobs")
    running.append(again)

    clock.advance(LEASE / 3)
    keeper.poll()

    assert again.pk == message.pk
    assert row_of(again)["locked_until"] == clock.now + LEASE


def test_a_settled_message_is_not_renewed(keeper, message, clock, caplog):
    message.complete()
    clock.advance(LEASE / 3)

    assert renewals(keeper) == 0
    assert caplog.records == []


def test_message_settled_while_its_renewal_waits_is_not_lost(
    keeper, message, clock, caplog, monkeypatch
):
    renew_many = MessageManager.renew_many

    def settled_first(manager, messages, **options):
        message.complete()
        return renew_many(manager, messages, **options)

    monkeypatch.setattr(MessageManager, "renew_many", settled_first)
    clock.advance(LEASE / 3)

    keeper.poll()

    assert caplog.records == []


def test_a_failing_database_is_told_once_and_tried_on(keeper, message, clock, caplog, monkeypatch):
    def fail(manager, messages, **options):
        raise OperationalError("database is locked")

    with monkeypatch.context() as failing:
        failing.setattr(MessageManager, "renew_many", fail)
        clock.advance(LEASE / 3)
        assert keeper.poll() == LONGEST_CHECK_INTERVAL
        assert keeper.poll() == LONGEST_CHECK_INTERVAL
    (record,) = caplog.records
    assert "locked" in record.getMessage()

    keeper.poll()

    assert row_of(message)["locked_until"] == clock.now + LEASE


def test_the_shortest_leases_are_looked_at_in_time(keeper, make_queue, running, clock):
    make_queue("short", lock_duration=3 * timedelta(seconds=LONGEST_CHECK_INTERVAL))
    keeper.poll()
    message = enqueue_and_claim("short")
    running.append(message)
    clock.advance(LONGEST_CHECK_INTERVAL)

    keeper.poll()

    assert row_of(message)["locked_until"] == clock.now + 3 * timedelta(
        seconds=LONGEST_CHECK_INTERVAL
    )


def test_ended_messages_are_forgotten(keeper, message, running, clock):
    clock.advance(LEASE / 3)
    keeper.poll()
    clock.advance(LEASE)
    keeper.poll()
    running.clear()

    keeper.poll()

    assert not keeper._lost
    assert not keeper._renewed


# Stalls


@pytest.fixture
def seconds(monkeypatch):
    """The monotonic clock of the keeper, which the test moves."""
    now = SimpleNamespace(at=100.0)
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now.at))
    return now


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("late", "least_ms"), [(0.0, 0), (2.6, 7_800), (86_400.0, 600_000)])
def test_leases_are_to_last_three_times_the_longest_stall(seconds, running, late, least_ms):
    keeper = LeaseRenewer("default", SimpleNamespace(running=running, cancel=lambda *_: False))
    seconds.at += keeper.poll() + late

    keeper.poll()
    keeper.poll()

    assert keeper.least_lease_ms == least_ms


def test_a_lease_is_renewed_for_as_long_as_a_stall_asks(seconds, running, make_queue, clock):
    make_queue("short", lock_duration=3)
    keeper = LeaseRenewer("default", SimpleNamespace(running=running, cancel=lambda *_: False))
    seconds.at += keeper.poll() + 10
    keeper.poll()
    message = enqueue_and_claim("short")
    running.append(message)
    clock.advance(1)

    keeper.poll()

    assert row_of(message)["locked_until"] == clock.now + timedelta(seconds=30)


def test_failing_database_is_a_stall_until_a_renewal_succeeds(
    seconds, keeper, message, clock, monkeypatch
):
    keeper = LeaseRenewer("default", keeper._pool)

    def fail(manager, messages, **options):
        raise OperationalError("database is locked")

    with monkeypatch.context() as failing:
        failing.setattr(MessageManager, "renew_many", fail)
        clock.advance(LEASE / 3)
        for _ in range(3):
            keeper.poll()
            seconds.at += 1

    keeper.poll()

    assert keeper.longest_stall == pytest.approx(3.0)


# Coroutines that do not end


def test_a_coroutine_that_does_not_end_when_cancelled_is_stuck(running, queue, clock):
    message = enqueue_and_claim(queue)
    running.append(message)
    stuck = []
    pool = SimpleNamespace(running=running, cancel=lambda *_: True)
    keeper = LeaseRenewer("default", pool, timeout_ms={"jobs": 1_000}, on_stuck=stuck.append)
    clock.advance(1.1)
    keeper.poll()
    assert (stuck, message.lease.lost) == ([], False)

    clock.advance(leases.CANCEL_GRACE_MS / 1_000)
    keeper.poll()
    keeper.poll()

    assert (stuck, message.lease.lost) == ([message], True)


@pytest.mark.parametrize("is_async", [False, True])
def test_supervisor_kills_and_does_not_renew_beyond_the_timeout(make_queue, clock, is_async):
    def function(message): ...

    async def coroutine(message): ...

    make_queue("jobs", lock_duration=2)
    handler = Handler(queue="jobs", function=coroutine if is_async else function, timeout_ms=1_500)
    kept = SupervisedLeases("default", {"jobs": handler})
    Message.objects.enqueue("jobs", None)
    (message,) = Message.objects.claim("jobs", worker="child", lock_duration=60)
    before = row_of(message)
    clock.advance(1)
    assert kept.renew(["child"]) == set()
    clock.advance(1)

    assert kept.renew(["child"]) == (set() if is_async else {"child"})

    assert row_of(message) == before
    assert kept.within_timeout("child") == []
    clock.advance(leases.CANCEL_GRACE_MS / 1_000)
    assert kept.renew(["child"]) == {"child"}
