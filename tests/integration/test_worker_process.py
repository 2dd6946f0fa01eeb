"""One process of a worker, inside the test: what it handles, leaves behind and returns."""

import io
import os
import signal
import sys
import threading
from contextlib import nullcontext

import psutil
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from django_mqlite import enqueue_many, handlers
from django_mqlite.handlers import Handler
from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
from django_mqlite.worker import database_errors
from django_mqlite.worker.process import ProcessResult
from django_mqlite.worker.reaper import Reaper
from django_mqlite.worker.shutdown import SIGNALS, Shutdown, shutdown_on_signals
from tests.support.steps import run_handler
from tests.support.verbs import state_of
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


@pytest.fixture
def break_database(monkeypatch):
    """Make the database fail from the call on, without any retries."""
    monkeypatch.setattr(database_errors, "GIVE_UP_AFTER", -1)

    def fail(manager):
        raise OperationalError("disk I/O error")

    return lambda *_: monkeypatch.setattr(MessageManager, "data_version", fail)


@pytest.fixture
def register(monkeypatch):
    """Register the only handler that the command finds."""

    def register(function):
        by_queue = {"jobs": Handler(queue="jobs", function=function)}
        monkeypatch.setattr(handlers, "_handlers", by_queue)

    return register


def signal_state():
    """Return how Python handles the signals, and the threads that read them."""
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    threads = {thread.name for thread in threading.enumerate()}
    return [signal.getsignal(number) for number in SIGNALS], descriptor, threads


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


def test_unusable_database_ends_the_process_with_the_error(queue, break_database):
    Message.objects.enqueue("jobs", None)

    result = run_handler(break_database)

    assert isinstance(result.error, OperationalError)
    assert result.running == 0
    assert threads_of_workers() == set()


@pytest.mark.parametrize("fails", [False, True])
def test_command_restores_signals_and_raises_the_databases_error(
    queue, register, break_database, fails
):
    register(break_database if fails else print)
    Message.objects.enqueue("jobs", None)
    before = signal_state()
    error = pytest.raises(CommandError, match=r"disk I/O error \(the disk is full")

    with error if fails else nullcontext():
        assert call_command("runworker", "--burst", "--threads=1") is None

    assert signal_state() == before


def test_reaper_command_restores_signals(queue, monkeypatch):
    before = signal_state()
    monkeypatch.setattr(Reaper, "run", lambda self, stop: os.kill(os.getpid(), signal.SIGTERM))

    call_command("runreaper")

    assert signal_state() == before


def test_signal_thread_ends_while_a_handler_process_has_its_socket(monkeypatch):
    """A forked process inherits the socket; a duplicate of the descriptor has the same effect."""
    join = threading.Thread.join
    ended = []

    def join_for_ten_seconds(thread, timeout=None):
        join(thread, 10 if timeout is None else timeout)
        ended.append(not thread.is_alive())

    with shutdown_on_signals(Shutdown()):
        descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(descriptor)
        inherited = os.dup(descriptor)
        monkeypatch.setattr(threading.Thread, "join", join_for_ten_seconds)

    os.close(inherited)
    assert ended == [True]


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
