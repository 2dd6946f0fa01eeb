"""A queue for tasks, and a worker that has no process."""

import pytest

from django_mqlite.models import Message
from django_mqlite.worker.executor import Executor
from django_mqlite.worker.outcome import outcome_of

from . import calls


@pytest.fixture(autouse=True)
def nothing_seen():
    calls.seen.clear()


@pytest.fixture
def tasks_queue(clock, make_queue):
    """The queue that a task is enqueued to by default."""
    return make_queue("default")


@pytest.fixture
def run_one(tasks_queue, clock):
    """Claims a message of the queue, runs it and settles it, as a worker does; the message."""

    def run(queue="default", worker="w"):
        (message,) = Message.objects.claim(queue, worker=worker)
        clock.advance(1)
        done = Executor(handlers={}, using="default").run(message)
        outcome = done.outcome or outcome_of(done.error)
        assert Message.objects.settle(message, outcome, error=done.error)
        return message

    return run
