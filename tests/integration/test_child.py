"""One process of a worker, run inside the test: what it leaves behind, and how it says it ended."""

import os
import signal
import threading
from contextlib import contextmanager, nullcontext

import psutil
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from django_mqlite import handlers
from django_mqlite.handlers import Handler
from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
from django_mqlite.worker import database_errors
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import ProcessResult, run_worker_process
from django_mqlite.worker.reaper import Reaper
from django_mqlite.worker.shutdown import SIGNALS, Shutdown, shutdown_on_signals
from tests.support.verbs import state_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def work_until_idle(handle, **options) -> ProcessResult:
    worker = WorkerOptions(**{"using": "default", "queues": ("jobs",), "burst": True, **options})
    return run_worker_process(worker, {"jobs": Handler(queue="jobs", function=handle)}, Shutdown())


def descriptors() -> int:
    return psutil.Process().num_fds()


OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def threads_of_other_tests():
    """Remember the threads that a test of another file has left at work."""
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def threads_of_workers() -> set[str]:
    """Return the names of the worker's threads that this test has started."""
    started = set(threading.enumerate()) - OTHERS
    return {thread.name for thread in started if thread.name.startswith("mqlite-")}


@pytest.fixture
def dead_database(monkeypatch):
    """The database fails as soon as this is called, and there is no more hope."""
    monkeypatch.setattr(database_errors, "GIVE_UP_AFTER", -1)

    def fail(manager):
        raise OperationalError("disk I/O error")

    return lambda: monkeypatch.setattr(MessageManager, "data_version", fail)


@contextmanager
def released(event):
    """Whatever happens, the handler that waits for the event may end, and does."""
    try:
        yield
    finally:
        event.set()
        wait_until(lambda: not threads_of_workers(), "the handler's thread to end")


def test_a_burst_handles_what_there_is_and_leaves_nothing_behind(queue):
    messages = [Message.objects.enqueue("jobs", number) for number in range(5)]
    seen = []
    before = descriptors()

    ended = work_until_idle(lambda message: seen.append(message.data))

    assert ended == ProcessResult(running=0, error=None)
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert {state_of(message) for message in messages} == {"gone"}
    assert threads_of_workers() == set()
    assert descriptors() <= before


def test_a_handler_that_does_not_end_is_counted(queue):
    message = Message.objects.enqueue("jobs", None)
    stop, may_end = Shutdown(), threading.Event()

    def work_too_long(message):
        stop.request()
        may_end.wait(60)

    worker = WorkerOptions(using="default", queues=("jobs",), shutdown_timeout=0)
    with released(may_end):
        ended = run_worker_process(
            worker, {"jobs": Handler(queue="jobs", function=work_too_long)}, stop
        )

        assert ended == ProcessResult(running=1, error=None)
        assert state_of(message) == "active"


def test_unusable_database_ends_the_child_with_the_error(queue, dead_database):
    Message.objects.enqueue("jobs", None)

    ended = work_until_idle(lambda message: dead_database())

    assert isinstance(ended.error, OperationalError)
    assert ended.running == 0
    assert threads_of_workers() == set()


@pytest.fixture
def in_process(monkeypatch):
    """Registers the one handler that the command finds."""
    found = {}
    monkeypatch.setattr(handlers, "_handlers", found)

    def handle(function):
        found["jobs"] = Handler(queue="jobs", function=function)

    return handle


def test_the_command_fails_with_what_the_database_failed_with(queue, in_process, dead_database):
    in_process(lambda message: dead_database())
    Message.objects.enqueue("jobs", None)

    with pytest.raises(CommandError, match=r"disk I/O error \(the disk is full"):
        call_command("runworker")


def test_the_command_ends_quietly(queue, in_process):
    in_process(print)

    assert call_command("runworker", "--burst", "--threads=1") is None


@pytest.mark.parametrize("ends", ["quietly", "with error"])
def test_command_leaves_no_signal_handlers_behind(queue, in_process, dead_database, ends):
    before = signal_state()
    in_process(print if ends == "quietly" else lambda message: dead_database())
    Message.objects.enqueue("jobs", None)

    with nullcontext() if ends == "quietly" else pytest.raises(CommandError):
        call_command("runworker", "--burst", "--threads=1")

    assert signal_state() == before


def test_reaper_leaves_no_signal_handlers_behind(queue, monkeypatch):
    before = signal_state()
    monkeypatch.setattr(Reaper, "run", lambda self, stop: os.kill(os.getpid(), signal.SIGTERM))

    call_command("runreaper")

    assert signal_state() == before


def test_worker_ends_while_a_handler_process_holds_its_signal_socket(monkeypatch):
    """A forked process inherits the socket; a duplicate of the descriptor is the same."""
    ended = []
    with shutdown_on_signals(Shutdown()):
        descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(descriptor)
        inherited = os.dup(descriptor)
        monkeypatch.setattr(threading.Thread, "join", bounded_join(ended))

    os.close(inherited)
    assert ended == [True]


def bounded_join(ended):
    """Join for 10 seconds at most, and record whether the thread ended."""
    join = threading.Thread.join

    def join_and_record(thread, timeout=None):
        join(thread, 10 if timeout is None else timeout)
        ended.append(not thread.is_alive())

    return join_and_record


def signal_state():
    """What Python does about the signals, and the threads that read them."""
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    threads = {thread.name for thread in threading.enumerate()}
    return [signal.getsignal(number) for number in SIGNALS], descriptor, threads
