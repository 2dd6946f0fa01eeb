"""One process of a worker, inside the test: what it handles, leaves behind and returns."""

import io
import sys
import threading

import psutil
import pytest

from django_mqlite import enqueue_many
from django_mqlite.models import Message
from django_mqlite.worker.consumer import Consumer
from django_mqlite.worker.process import ProcessResult
from django_mqlite.worker.shutdown import Shutdown
from django_mqlite.worker.watchdogs import Memory
from tests.support.steps import PARALLEL_FLAVOURS, Work, run_handler
from tests.support.verbs import row_of, state_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def threads_of_other_tests():
    """Remember the threads that a test of another file has left running."""
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def threads_of_workers() -> set[str]:
    """Return the names of the worker's threads that this test has started."""
    started = set(threading.enumerate()) - OTHERS
    return {thread.name for thread in started if thread.name.startswith("mqlite-")}


def test_burst_handles_all_messages_and_leaves_nothing_behind(queue):
    messages = enqueue_many("jobs", range(5))
    handled = []
    descriptors = psutil.Process().num_fds()

    result = run_handler(lambda message: handled.append(message.data), threads=4)

    assert result == ProcessResult(running=0, error=None)
    assert sorted(handled) == [0, 1, 2, 3, 4]
    assert {state_of(message) for message in messages} == {"gone"}
    assert threads_of_workers() == set()
    assert psutil.Process().num_fds() <= descriptors


def test_handler_that_does_not_end_is_counted_as_running(queue):
    message = Message.objects.enqueue("jobs", None)
    shutdown, may_end = Shutdown(), threading.Event()

    def work_too_long(message):
        shutdown.request()
        may_end.wait(60)

    try:
        result = run_handler(work_too_long, shutdown=shutdown, burst=False, shutdown_timeout=0)

        assert result == ProcessResult(running=1, error=None)
        assert state_of(message) == "active"
    finally:
        may_end.set()
        wait_until(lambda: not threads_of_workers(), "the handler's thread to end")


@pytest.mark.parametrize("limit", ["messages", "memory"])
@pytest.mark.parametrize("flavour", PARALLEL_FLAVOURS)
def test_process_at_a_limit_waits_longer_than_shutdown_timeout(
    make_queue, monkeypatch, flavour, limit
):
    make_queue("jobs", max_delivery_count=1, retain_completed=60)
    is_running, polls = threading.Event(), []
    if limit == "memory":
        monkeypatch.setattr(Memory, "exceeded", property(lambda memory: is_running.is_set()))
    poll = Consumer.poll

    def count_and_poll(consumer, *, claim=True):
        if not claim:
            polls.append(consumer)
        return poll(consumer, claim=claim)

    def work_until_polled(message):
        is_running.set()
        wait_until(lambda: len(polls) > 5, "the process to wait for its handler")

    monkeypatch.setattr(Consumer, "poll", count_and_poll)
    work = Work(flavour, work_until_polled)
    message = work.enqueue()

    maximum = 1 if limit == "messages" else None
    work.run(burst=False, max_messages=maximum, shutdown_timeout=0.001)

    row = row_of(Message.objects.get(pk=message))
    assert (row["state"], row["delivery_count"], row["interruptions"]) == ("completed", 1, 0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stdout", "burst", "is_shown"),
    [(Terminal, True, True), (io.StringIO, True, False), (Terminal, False, False)],
    ids=["burst on a terminal", "burst in a pipe", "no burst"],
)
def test_progress_is_shown_for_bursts_on_terminals(queue, monkeypatch, stdout, burst, is_shown):
    enqueue_many("jobs", [1, 2])
    stream = stdout()
    monkeypatch.setattr(sys, "stdout", stream)

    run_handler(lambda message: None, burst=burst, max_messages=2)

    text = stream.getvalue()
    assert ("2/2" in text) == is_shown
    assert text.endswith("\r\x1b[K") == is_shown
