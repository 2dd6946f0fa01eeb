"""Leases of running handlers are renewed at a third of their length."""

import logging
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from types import SimpleNamespace
from unittest import mock

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.exceptions import Discarded, LockLost
from django_mqlite.handlers import Handler
from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
from django_mqlite.worker import leases
from django_mqlite.worker.executor import DeliveryResult
from django_mqlite.worker.leases import (
    MAX_CHECK_INTERVAL,
    MIN_CHECK_INTERVAL,
    LeaseRenewer,
    SupervisedLeases,
)
from django_mqlite.worker.pool import Pool
from tests.support.steps import plain_task
from tests.support.verbs import enqueue_and_claim, reap, row_of, state_of
from tests.support.waiting import wait_until

LEASE = timedelta(seconds=30)


@pytest.fixture
def running():
    """The messages that the pool runs; the test fills the list."""
    return []


@pytest.fixture
def renewer(running):
    return LeaseRenewer("default", SimpleNamespace(running=running, cancel=lambda *_: False))


@pytest.fixture
def claim(running):
    """Claim a new message of the queue, as one that the pool runs."""

    def claim(queue):
        running.append(enqueue_and_claim(queue))
        return running[-1]

    return claim


@pytest.fixture
def message(queue, claim):
    return claim(queue)


@contextmanager
def failing_renewals():
    error = OperationalError("database is locked")
    with mock.patch.object(MessageManager, "renew_many", side_effect=error):
        yield


def count_renewals(renewer) -> int:
    """Poll once; return the number of statements that renew."""
    with CaptureQueriesContext(connection) as captured:
        renewer.poll()
    return sum("locked_until = max(" in query["sql"] for query in captured)


# The thread


def test_started_message_wakes_an_idle_renewer(message, monkeypatch):
    monkeypatch.setattr(leases, "IDLE_CHECK_INTERVAL", 3600)
    polled = Event()
    pool = Pool(
        lambda message: DeliveryResult(message=message, error=None),
        threads=1,
        on_finished=lambda: None,
    )
    renewer = LeaseRenewer("default", pool)
    monkeypatch.setattr(renewer, "poll", lambda: polled.set() or 0)
    renewer.start()
    wait_until(polled.is_set, "the first poll")
    wait_until(lambda: not pool.busy.is_set(), "the renewer to wait")
    polled.clear()

    pool.start(message)

    wait_until(polled.is_set, "another poll")
    renewer.stop()
    assert not renewer._thread.is_alive()


def test_idle_renewer_ends_at_once(monkeypatch):
    monkeypatch.setattr(leases, "IDLE_CHECK_INTERVAL", 3600)
    renewer = LeaseRenewer("default", Pool(print, threads=0, on_finished=lambda: None))
    renewer.start()

    renewer.stop()

    assert not renewer._thread.is_alive()


# Renewals


def test_renewer_without_messages_only_waits(renewer):
    assert renewer.poll() == MAX_CHECK_INTERVAL


@pytest.mark.parametrize(
    ("left", "renewals", "seconds"),
    [(1, 0, MIN_CHECK_INTERVAL), (0, 1, MAX_CHECK_INTERVAL)],
)
def test_lease_is_renewed_after_a_third_of_its_duration(
    renewer, message, clock, left, renewals, seconds
):
    renewer.poll()  # the first time, it checks which leases hold
    locked_until = message.locked_until
    clock.advance(LEASE / 3 - timedelta(milliseconds=left))

    with CaptureQueriesContext(connection) as captured:
        assert renewer.poll() == seconds

    assert bool(captured) == bool(renewals)
    expected = clock.now + LEASE if renewals else locked_until
    assert row_of(message)["locked_until"] == expected


def test_renewed_lease_outlives_any_handler(renewer, message, clock):
    locked_at = message.locked_at
    for _ in range(100):
        clock.advance(LEASE / 3)
        renewer.poll()

    assert reap() == []
    message.abandon(error="too hard")
    assert message.locked_at == locked_at
    (error,) = row_of(message)["errors"]
    assert error["started_at"] == round(locked_at.timestamp() * 1000)


def test_due_leases_are_renewed_in_one_statement(renewer, message, queue, claim, running, clock):
    for _ in range(20):
        claim(queue)
    clock.advance(LEASE / 3)
    fresh = claim(queue)
    before = row_of(fresh)
    clock.advance(1)

    assert count_renewals(renewer) == 1
    assert {row_of(message)["locked_until"] for message in running[:-1]} == {clock.now + LEASE}
    assert row_of(fresh) == before


def test_shortest_lease_is_renewed_in_time(renewer, make_queue, claim, clock):
    lease = 3 * timedelta(seconds=MAX_CHECK_INTERVAL)
    make_queue("short", lock_duration=lease)
    renewer.poll()
    message = claim("short")
    clock.advance(MAX_CHECK_INTERVAL)

    renewer.poll()

    assert row_of(message)["locked_until"] == clock.now + lease


def test_lost_lease_is_logged_once_and_others_are_renewed(
    renewer, message, queue, claim, clock, caplog
):
    clock.advance(LEASE)
    other = claim(queue)

    assert count_renewals(renewer) == 1
    assert count_renewals(renewer) == 0
    (record,) = caplog.records
    assert (record.levelno, record.queue, record.id) == (logging.WARNING, "jobs", message.pk)

    clock.advance(LEASE / 3)
    renewer.poll()
    assert row_of(other)["locked_until"] == clock.now + LEASE


def test_coroutine_of_a_lost_lease_is_cancelled_with_the_verb(running, message, clock):
    cancelled = {}
    pool = SimpleNamespace(running=running, cancel=cancelled.__setitem__)
    clock.advance(LEASE)

    LeaseRenewer("default", pool).poll()

    assert cancelled[message].verb == "renew"


def test_message_under_a_new_lease_is_renewed_again(renewer, message, running, clock):
    clock.advance(LEASE)
    renewer.poll()
    reap()
    (again,) = Message.objects.claim("jobs")
    running.append(again)

    clock.advance(LEASE / 3)
    renewer.poll()

    assert again.pk == message.pk
    assert row_of(again)["locked_until"] == clock.now + LEASE


@pytest.mark.parametrize("renewal_waits", [False, True])
def test_settled_message_is_neither_renewed_nor_lost(
    renewer, message, clock, caplog, monkeypatch, renewal_waits
):
    renew_many = MessageManager.renew_many

    def settle_first(manager, messages, **options):
        assert renewal_waits
        message.complete()
        return renew_many(manager, messages, **options)

    monkeypatch.setattr(MessageManager, "renew_many", settle_first)
    clock.advance(LEASE / 3)
    if not renewal_waits:
        message.complete()

    renewer.poll()

    assert state_of(message) == "gone"
    assert caplog.records == []


def test_failing_database_is_logged_once_and_retried(renewer, message, clock, caplog):
    clock.advance(LEASE / 3)
    with failing_renewals():
        assert [renewer.poll(), renewer.poll()] == [MAX_CHECK_INTERVAL] * 2
    (record,) = caplog.records
    assert "locked" in record.getMessage()

    renewer.poll()

    assert row_of(message)["locked_until"] == clock.now + LEASE


def test_ended_messages_are_forgotten(renewer, message, running, clock):
    clock.advance(LEASE / 3)
    renewer.poll()
    clock.advance(LEASE)
    renewer.poll()
    running.clear()

    renewer.poll()

    assert not renewer._lost
    assert not renewer._renewed


# Leases that an operator ends


def release(message):
    seen = Message.objects.get(pk=message.pk).lease_fingerprint
    assert Message.objects.release(message.pk, seen=seen)


@pytest.mark.parametrize(
    ("end", "error", "reason"),
    [
        (lambda message: Message.objects.discard(message.pk), Discarded, "discarded"),
        (release, LockLost, "released"),
    ],
    ids=["discarded", "released"],
)
def test_lease_that_an_operator_ends_is_noticed(queue, running, caplog, end, error, reason):
    held, other = enqueue_and_claim(queue), enqueue_and_claim(queue)
    running += [held, other]
    cancelled = []
    pool = SimpleNamespace(
        running=running, cancel=lambda message, error: cancelled.append((message, error))
    )
    renewer = LeaseRenewer("default", pool)
    renewer.poll()
    end(held)
    renewer._version = None  # as if another connection had committed

    renewer.poll()
    renewer.poll()

    assert (held.lease.lost, other.lease.lost) == (True, False)
    ((message, found),) = cancelled
    assert message is held
    assert isinstance(found, error)
    (record,) = [record for record in caplog.records if "is lost" in record.getMessage()]
    assert reason in record.getMessage()


def test_handler_of_a_discarded_message_is_reported_once_after_its_grace(
    seconds, queue, running, clock
):
    held = enqueue_and_claim(queue)
    running.append(held)
    reported = []
    pool = SimpleNamespace(running=running, cancel=lambda *_: False)
    renewer = LeaseRenewer("default", pool, on_discarded=reported.append)
    Message.objects.discard(held.pk)
    renewer.poll()
    seconds.at += leases.CANCEL_GRACE_MS / 1_000 - 0.1
    renewer.poll()
    assert reported == []
    seconds.at += 0.1

    renewer.poll()
    renewer.poll()

    assert reported == [held]


# Stalls


@pytest.fixture
def seconds(monkeypatch):
    """The monotonic clock of the renewer, which the test moves."""
    now = SimpleNamespace(at=100.0)
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now.at))
    return now


@pytest.fixture
def timed_renewer(seconds, renewer):
    """A renewer on that clock."""
    return LeaseRenewer("default", renewer._pool)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("late", "least_ms"), [(0.0, 0), (2.6, 7_800), (86_400.0, 600_000)])
def test_minimum_lease_is_three_times_the_longest_stall(seconds, timed_renewer, late, least_ms):
    seconds.at += timed_renewer.poll() + late

    timed_renewer.poll()
    timed_renewer.poll()

    assert timed_renewer.minimum_lease_ms == least_ms


def test_lease_is_renewed_for_the_minimum_lease(seconds, timed_renewer, claim, make_queue, clock):
    make_queue("short", lock_duration=3)
    seconds.at += timed_renewer.poll() + 10
    timed_renewer.poll()
    message = claim("short")
    clock.advance(1)

    timed_renewer.poll()

    assert row_of(message)["locked_until"] == clock.now + timedelta(seconds=30)


def test_failing_database_is_a_stall_until_a_renewal_succeeds(
    seconds, timed_renewer, message, clock
):
    clock.advance(LEASE / 3)
    with failing_renewals():
        for _ in range(3):
            timed_renewer.poll()
            seconds.at += 1

    timed_renewer.poll()

    assert timed_renewer.longest_stall == pytest.approx(3.0)


# Timeouts


@pytest.mark.rule("14.5")
def test_coroutine_that_ignores_its_cancellation_is_stuck(running, message, clock):
    stuck = []
    pool = SimpleNamespace(running=running, cancel=lambda *_: True)
    renewer = LeaseRenewer("default", pool, timeout_ms={"jobs": 1_000}, on_stuck=stuck.append)
    clock.advance(1.1)
    renewer.poll()
    assert (stuck, message.lease.lost) == ([], False)

    clock.advance(leases.CANCEL_GRACE_MS / 1_000)
    renewer.poll()
    renewer.poll()

    assert (stuck, message.lease.lost) == ([message], True)


@pytest.mark.rule("14.3")
@pytest.mark.parametrize("is_async", [False, True])
def test_supervisor_kills_after_a_grace_period_beyond_the_timeout(make_queue, clock, is_async):
    def function(message): ...

    async def coroutine(message): ...

    make_queue("jobs", lock_duration=2)
    handler = Handler(queue="jobs", function=coroutine if is_async else function, timeout_ms=1_500)
    supervised = SupervisedLeases("default", {"jobs": handler})
    Message.objects.enqueue("jobs", None)
    (message,) = Message.objects.claim("jobs", worker="child", lock_duration=60)
    before = row_of(message)
    clock.advance(2)

    assert supervised.renew(["child"]) == set()
    assert supervised.within_timeout("child") == []

    clock.advance(leases.CANCEL_GRACE_MS / 1_000)
    assert supervised.renew(["child"]) == {"child"}
    assert row_of(message) == before


@pytest.mark.rule("14.3")
def test_supervisor_renews_until_the_grace_period_is_over(make_queue, clock):
    """Otherwise the lease could expire first, and nobody would kill the process."""
    make_queue("jobs", lock_duration=2)
    handler = Handler(queue="jobs", function=print, timeout_ms=500)
    supervised = SupervisedLeases("default", {"jobs": handler})
    Message.objects.enqueue("jobs", None)
    (message,) = Message.objects.claim("jobs", worker="child")
    ran = 0.0

    while supervised.renew(["child"]) == set():
        clock.advance(0.5)
        ran += 0.5
        assert ran < 60

    assert ran == 6
    assert state_of(message) == "locked"


@pytest.mark.rule("14.1")
@pytest.mark.parametrize("queues", [3_600_000, None], ids=["the queue has one", "it has none"])
def test_supervisor_knows_the_timeout_of_a_task(make_queue, clock, queues):
    make_queue("jobs", lock_duration=60)
    supervised = SupervisedLeases(
        "default", {"jobs": Handler(queue="jobs", function=print, timeout_ms=queues)}
    )
    plain_task.using(queue_name="jobs", timeout=1).enqueue()
    Message.objects.claim("jobs", worker="child")
    clock.advance(1.1)
    assert supervised.within_timeout("child") == []

    clock.advance(leases.CANCEL_GRACE_MS / 1_000)

    assert supervised.renew(["child"]) == {"child"}
