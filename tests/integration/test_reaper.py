"""The reaper: looks when the next thing is due, sweeps, rests."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import Message
from django_mqlite.verbs.workers import registered_workers
from django_mqlite.worker import reaper as reapers
from django_mqlite.worker import reaper as sweeps
from django_mqlite.worker.database_errors import FIRST_RETRY_DELAY
from django_mqlite.worker.reaper import (
    BATCH_PAUSE,
    MAX_POLL_INTERVAL,
    STANDALONE_POLL_INTERVAL,
    Reaper,
)
from django_mqlite.worker.shutdown import Shutdown
from tests.support.verbs import enqueue_and_claim, state_of


@pytest.fixture
def reaper():
    return Reaper("default")


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(sweeps, "BATCH", 2)
    monkeypatch.setattr(reapers, "BATCH", 2)


def schedule(queue, delay, count=1):
    return [Message.objects.enqueue(str(queue), None, delay=delay) for _ in range(count)]


def expire(queue, clock, count):
    messages = [enqueue_and_claim(queue) for _ in range(count)]
    clock.advance(queue.lock_duration)
    return messages


def states(messages):
    return [state_of(message) for message in messages]


def test_reaper_without_due_work_reads_and_waits(reaper, queue):
    with CaptureQueriesContext(connection) as captured:
        assert reaper.poll() == MAX_POLL_INTERVAL

    assert {query["sql"].split()[0] for query in captured} == {"SELECT"}


def test_housekeeping_is_not_done_at_every_look(reaper, queue):
    reaper.poll()

    with CaptureQueriesContext(connection) as captured:
        reaper.poll()

    assert len(captured) == 1


def test_reaper_waits_until_the_next_due_time(reaper, queue):
    schedule(queue, 0.25)

    assert reaper.poll() == 0.25


def test_reaper_waits_a_second_at_most_to_notice_clock_steps(reaper, queue, clock):
    (message,) = schedule(queue, 3_600)
    assert reaper.poll() == MAX_POLL_INTERVAL

    clock.advance(timedelta(hours=1))
    reaper.poll()

    assert state_of(message) == "active"


def test_what_is_due_is_claimable_and_what_is_not_stays(reaper, queue, clock):
    due, early = schedule(queue, 1) + schedule(queue, 1.5)
    clock.advance(1)

    rest = reaper.poll()

    assert states([due, early]) == ["active", "scheduled"]
    assert rest == 0.5


def test_a_lease_that_ran_out_ends(reaper, queue, clock):
    (message,) = expire(queue, clock, 1)

    assert reaper.poll() == MAX_POLL_INTERVAL

    assert state_of(message) == "active"


def test_a_lease_that_holds_is_left_alone(reaper, queue, clock):
    message = enqueue_and_claim(queue)
    clock.advance(queue.lock_duration - timedelta(milliseconds=1))

    rest = reaper.poll()

    assert state_of(message) == "locked"
    assert rest == 0.001


def test_a_full_batch_is_followed_by_another_after_a_gap_for_other_writers(
    reaper, queue, clock, small_batches
):
    messages = expire(queue, clock, 5)

    rests = [reaper.poll() for _ in range(3)]

    assert rests == [BATCH_PAUSE, BATCH_PAUSE, MAX_POLL_INTERVAL]
    assert states(messages) == ["active"] * 5


def test_each_batch_is_a_transaction_of_its_own(queue, clock, small_batches):
    expire(queue, clock, 3)
    released = {"leases released": sweeps.URGENT["leases released"]}

    with CaptureQueriesContext(connection) as captured:
        sweeps.run_round(released, "default")
        sweeps.run_round(released, "default")

    begun = [query for query in captured if query["sql"].startswith("SAVEPOINT")]
    assert len(begun) == 2


def test_all_that_is_due_is_swept_and_counted(queue, clock, small_batches):
    schedule(queue, 1, count=3)
    expire(queue, clock, 5)
    nothing = dict.fromkeys([*sweeps.URGENT, *sweeps.HOUSEKEEPING], 0)

    swept = sweeps.run_all("default")

    assert swept == {**nothing, "leases released": 5, "schedules activated": 3}
    assert sweeps.run_all("default") == nothing


def test_a_second_reaper_finds_nothing_left_and_does_no_harm(reaper, queue, clock):
    messages = expire(queue, clock, 3)
    reaper.poll()
    (claimed,) = Message.objects.claim("jobs")

    Reaper("default").poll()

    assert states(messages) == ["locked", "active", "active"]
    claimed.complete()


def test_a_lone_reaper_looks_often_and_ends_when_asked(reaper, queue, monkeypatch):
    stop = Shutdown()
    rests = []

    def wait(seconds):
        rests.append(seconds)
        return len(rests) == 3

    monkeypatch.setattr(stop, "wait", wait)

    reaper.run(stop)

    assert rests == [STANDALONE_POLL_INTERVAL] * 3


def test_lone_reaper_is_registered_while_running(reaper, queue, monkeypatch):
    stop = Shutdown()
    seen = []

    def wait(seconds):
        seen.extend(registered_workers("default"))
        return True

    monkeypatch.setattr(stop, "wait", wait)
    reaper.run(stop)

    (record,) = seen
    assert (record.queues, record.slots, record.reaps) == ((), 0, True)
    assert registered_workers("default") == []


def test_a_lone_reaper_waits_for_a_database_that_fails(reaper, queue, monkeypatch):
    stop = Shutdown()
    rests = []
    fails = [True, True, False]

    def look(using):
        if fails.pop(0):
            raise OperationalError("database is locked")

    def wait(seconds):
        rests.append(seconds)
        return not fails

    monkeypatch.setattr(reapers, "next_event_in", look)
    monkeypatch.setattr(stop, "wait", wait)

    reaper.run(stop)

    assert rests == [FIRST_RETRY_DELAY, 2 * FIRST_RETRY_DELAY, STANDALONE_POLL_INTERVAL]


def test_runreaper_once_reports_its_work(queue, clock):
    schedule(queue, 1)
    expire(queue, clock, 2)
    said = StringIO()

    call_command("runreaper", "--once", stdout=said)

    lines = said.getvalue().splitlines()
    assert lines[:2] == ["leases released: 2", "schedules activated: 1"]
