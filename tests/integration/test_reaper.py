"""The reaper polls when the next message is due, sweeps, and waits."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import Message
from django_mqlite.verbs.workers import registered_workers
from django_mqlite.worker import reaper as reaper_module
from django_mqlite.worker.database_errors import FIRST_RETRY_DELAY
from django_mqlite.worker.reaper import (
    BATCH_PAUSE,
    HOUSEKEEPING,
    MAX_POLL_INTERVAL,
    STANDALONE_POLL_INTERVAL,
    URGENT,
    Reaper,
    run_all,
    run_round,
)
from tests.support.verbs import enqueue_and_claim, state_of


@pytest.fixture
def reaper():
    return Reaper("default")


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(reaper_module, "BATCH", 2)


def schedule(queue, delay, count=1):
    return [Message.objects.enqueue(str(queue), None, delay=delay) for _ in range(count)]


def expire(queue, clock, count):
    messages = [enqueue_and_claim(queue) for _ in range(count)]
    clock.advance(queue.lock_duration)
    return messages


def states(messages):
    return [state_of(message) for message in messages]


def test_reaper_without_due_messages_reads_and_waits(reaper, queue):
    with CaptureQueriesContext(connection) as captured:
        assert reaper.poll() == MAX_POLL_INTERVAL
    assert {query["sql"].split()[0] for query in captured} == {"SELECT"}

    with CaptureQueriesContext(connection) as captured:
        reaper.poll()
    assert len(captured) == 1, "housekeeping is not due at every poll"


@pytest.mark.parametrize(("delay", "seconds"), [(0.25, 0.25), (3_600, MAX_POLL_INTERVAL)])
def test_reaper_waits_until_the_next_due_time(reaper, queue, clock, delay, seconds):
    """It waits a second at most, because the clock may be set."""
    messages = schedule(queue, delay) + schedule(queue, delay + 0.5)
    assert reaper.poll() == seconds

    clock.advance(delay)

    assert reaper.poll() == 0.5
    assert states(messages) == ["active", "scheduled"]


@pytest.mark.parametrize(
    ("left", "state", "seconds"), [(0, "active", MAX_POLL_INTERVAL), (1, "locked", 0.001)]
)
def test_lease_ends_when_its_time_is_over(reaper, queue, clock, left, state, seconds):
    message = enqueue_and_claim(queue)
    clock.advance(queue.lock_duration - timedelta(milliseconds=left))

    assert reaper.poll() == seconds

    assert state_of(message) == state


@pytest.mark.usefixtures("small_batches")
def test_full_batch_is_followed_by_another_after_a_pause_for_writers(reaper, queue, clock):
    messages = expire(queue, clock, 5)

    seconds = [reaper.poll() for _ in range(3)]

    assert seconds == [BATCH_PAUSE, BATCH_PAUSE, MAX_POLL_INTERVAL]
    assert states(messages) == ["active"] * 5


@pytest.mark.usefixtures("small_batches")
def test_each_batch_is_a_transaction_of_its_own(queue, clock):
    expire(queue, clock, 3)
    sweeps = {"leases released": URGENT["leases released"]}

    with CaptureQueriesContext(connection) as captured:
        run_round(sweeps, "default")
        run_round(sweeps, "default")

    begun = [query for query in captured if query["sql"].startswith("SAVEPOINT")]
    assert len(begun) == 2


@pytest.mark.usefixtures("small_batches")
def test_run_all_sweeps_and_counts_everything_due(queue, clock):
    schedule(queue, 1, count=3)
    expire(queue, clock, 5)
    nothing = dict.fromkeys([*URGENT, *HOUSEKEEPING], 0)

    swept = run_all("default")

    assert swept == {**nothing, "leases released": 5, "schedules activated": 3}
    assert run_all("default") == nothing


# runreaper


class Waits:
    """A shutdown that is requested after so many waits, and remembers them."""

    def __init__(self, count, on_wait=lambda: None):
        self.seconds = []
        self._count = count
        self._on_wait = on_wait

    def wait(self, seconds):
        self.seconds.append(seconds)
        self._on_wait()
        return len(self.seconds) == self._count


def test_standalone_reaper_is_registered_while_running(reaper, queue):
    records = []
    shutdown = Waits(3, lambda: records.extend(registered_workers("default")))

    reaper.run(shutdown)

    assert shutdown.seconds == [STANDALONE_POLL_INTERVAL] * 3
    assert {(record.queues, record.slots, record.reaps) for record in records} == {((), 0, True)}
    assert registered_workers("default") == []


def test_standalone_reaper_retries_when_the_database_fails(reaper, queue, monkeypatch):
    failures = [True, True, False]

    def next_event_in(using):
        if failures.pop(0):
            raise OperationalError("database is locked")

    monkeypatch.setattr(reaper_module, "next_event_in", next_event_in)
    shutdown = Waits(3)

    reaper.run(shutdown)

    assert shutdown.seconds == [FIRST_RETRY_DELAY, 2 * FIRST_RETRY_DELAY, STANDALONE_POLL_INTERVAL]


def test_runreaper_once_reports_its_sweeps(queue, clock):
    schedule(queue, 1)
    expire(queue, clock, 2)
    output = StringIO()

    call_command("runreaper", "--once", stdout=output)

    lines = output.getvalue().splitlines()
    assert lines[:2] == ["leases released: 2", "schedules activated: 1"]
