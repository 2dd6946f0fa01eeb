"""`manage.py runworker` and `runreaper`: their options, and what a real process notices.

How they end: test_worker_signals.py. Several processes: test_supervisor.py.
"""

import os
import signal
import threading
from contextlib import nullcontext

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from django_mqlite import enqueue, enqueue_many, handlers, timing
from django_mqlite.handlers import Handler
from django_mqlite.managers import MessageManager
from django_mqlite.models import Queue
from django_mqlite.worker import database_errors
from django_mqlite.worker.reaper import Reaper
from django_mqlite.worker.shutdown import SIGNALS, Shutdown, shutdown_on_signals
from tests.support.verbs import enqueue_and_claim, state_of
from tests.support.waiting import wait_until

QUEUES = ("jobs", "more", "strict")

in_process = pytest.mark.django_db(transaction=True)


@pytest.fixture
def serve(monkeypatch, make_queue):
    """Create queues, and register a handler for each, which the command finds."""

    def serve(function, queues=QUEUES):
        for queue in queues:
            make_queue(queue)
        by_queue = {queue: Handler(queue=queue, function=function) for queue in queues}
        monkeypatch.setattr(handlers, "_handlers", by_queue)

    return serve


# Options


SERVED = {
    "--queues=more,jobs": "more more jobs jobs",
    "--exclude=strict,more": "jobs jobs",
    "--queues=more,jobs --max-messages=3": "more more jobs",
    "--queues=more,*": "more more jobs strict jobs strict",
}


@in_process
@pytest.mark.parametrize("arguments", SERVED)
def test_command_handles_the_queues_of_its_options_in_order(serve, arguments):
    handled = []
    serve(lambda message: handled.append(message.queue))
    for queue in QUEUES:
        enqueue_many(queue, [1, 2])

    call_command("runworker", *arguments.split(), "--burst", "--threads=1")

    expected = SERVED[arguments].split()
    assert handled[:2] == expected[:2]
    assert sorted(handled) == sorted(expected)


@in_process
@pytest.mark.parametrize(
    "options",
    [
        {"queues": "jobs"},
        {"queues": " jobs, "},
        {"queues": ["jobs"]},
        {"queues": ("jobs",)},
        {"queues": "*", "exclude": "strict,more"},
        {"exclude": ["strict", "more"]},
    ],
    ids=str,
)
def test_call_command_takes_queue_names_as_text_or_sequence(serve, options):
    handled = []
    serve(lambda message: handled.append(message.queue))
    for queue in QUEUES:
        enqueue(queue, None)

    call_command("runworker", burst=True, **options)

    assert handled == ["jobs"]


@in_process
def test_command_runs_as_many_handlers_at_once_as_threads(serve):
    together = threading.Barrier(3)
    counts = []

    def meet(message):
        counts.append(together.wait(30))

    serve(meet, queues=["jobs"])
    enqueue_many("jobs", range(6))

    call_command("runworker", "--burst", "--threads=3")

    assert sorted(counts) == [0, 0, 1, 1, 2, 2]


@in_process
@pytest.mark.rule("17.8")
def test_burst_handles_every_message_of_limited_queues(serve):
    handled = []
    serve(lambda message: handled.append(message.queue), queues=["jobs", "more"])
    Queue.objects.configure("jobs", rate=(3, 0.05))
    Queue.objects.configure("more", max_in_flight=1)
    for queue in ("jobs", "more"):
        enqueue_many(queue, range(12))

    call_command("runworker", "--burst", "--threads=4")

    assert sorted(handled) == ["jobs"] * 12 + ["more"] * 12


@in_process
def test_worker_without_reaper_leaves_due_messages_to_runreaper(serve, clock):
    serve(lambda message: None)
    due = enqueue("more", None, delay=1)
    expired = enqueue_and_claim("jobs")
    clock.advance(60)

    call_command("runworker", "--no-reaper", "--burst")
    assert [state_of(expired), state_of(due)] == ["locked", "scheduled"]
    call_command("runreaper", "--once")

    assert [state_of(expired), state_of(due)] == ["active", "active"]


# Errors and signals


@pytest.fixture
def break_database(monkeypatch):
    """Make the database fail from the call on, without any retries."""
    monkeypatch.setattr(database_errors, "GIVE_UP_AFTER", -1)

    def fail(manager):
        raise OperationalError("disk I/O error")

    return lambda *_: monkeypatch.setattr(MessageManager, "data_version", fail)


def signal_state():
    """Return how Python handles the signals, and the threads that read them."""
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    threads = {thread.name for thread in threading.enumerate()}
    return [signal.getsignal(number) for number in SIGNALS], descriptor, threads


@in_process
@pytest.mark.parametrize("fails", [False, True])
def test_command_restores_signals_and_raises_the_databases_error(serve, break_database, fails):
    serve(break_database if fails else print, queues=["jobs"])
    enqueue("jobs", None)
    before = signal_state()
    error = pytest.raises(CommandError, match=r"disk I/O error \(the disk is full")

    with error if fails else nullcontext():
        assert call_command("runworker", "--burst", "--threads=1") is None

    assert signal_state() == before


@in_process
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


# Real processes


def test_reaper_process_works_until_a_signal(database):
    reaper = database.run("runreaper")
    messages = [database.enqueue("jobs", delay=delay) for delay in (0.01, 0.2)]

    for message in messages:
        database.wait_state(message, "active")

    reaper.stop()


def test_scheduled_message_is_delivered_when_due(database):
    worker = database.start().wait_ready()
    message = database.enqueue("jobs", delay=0.3)

    wait_until(database.effects, "the delivery")

    assert timing.now_ms() >= message.visible_at.timestamp() * 1_000
    worker.stop()


def test_handler_longer_than_its_lease_keeps_the_lease(database, busy):
    worker, message = busy("--threads=2", lease=1)
    first = database.row(message)["locked_until"]

    wait_until(
        lambda: (database.row(message)["locked_until"] - first).total_seconds() > 2,
        "the lease to be renewed twice",
    )
    database.go_on()
    database.wait_gone(message)

    assert database.deliveries() == [1]
    worker.stop()


def test_message_inserted_by_another_program_is_noticed(database):
    worker = database.start("--no-reaper").wait_ready()  # the reaper polls as well, every second

    with database.other_program() as other:
        other.execute(
            "INSERT INTO mqlite_messages (queue, enqueued_at, content_type, body)"
            " VALUES ('jobs', 1, 'application/json', CAST('{}' AS BLOB))"
        )

    wait_until(database.effects, "the delivery")
    worker.stop()
