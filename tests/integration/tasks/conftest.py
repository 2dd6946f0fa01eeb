"""A queue for tasks, and a worker that has no process."""

from contextlib import contextmanager

import pytest
from django.test import TestCase

from django_mqlite.models import Message
from django_mqlite.task_backend.compat import signals
from django_mqlite.testing import drain

from . import calls


@pytest.fixture(autouse=True)
def nothing_seen():
    calls.seen.clear()


@pytest.fixture
def tasks_queue(clock, make_queue):
    """The queue that a task is enqueued to by default."""
    return make_queue("default")


@pytest.fixture
def unique_queue(clock, make_queue):
    """The same with a window in which a repeat is told."""
    return make_queue("default", dedup_window=600)


@pytest.fixture
def run_all():
    """Everything that is due, with its retries; the number of attempts."""
    return lambda: len(drain("default"))


@pytest.fixture
def run_once():
    """One attempt, and no more."""
    return lambda: drain("default", retries=False)


@pytest.fixture
def message_of():
    """The message that a result is of."""
    return lambda result: Message.objects.get(message_id=result.id)


@pytest.fixture
def heard():
    """The signals as they come: name, sender, and status and id of the result."""
    told = []

    def hear(name):
        def receive(sender, task_result, **kwargs):
            told.append((name, sender, str(task_result.status), task_result.id))

        return receive

    receivers = {name: hear(name) for name in ("task_enqueued", "task_started", "task_finished")}
    for name, receive in receivers.items():
        getattr(signals, name).connect(receive)
    yield told
    for name, receive in receivers.items():
        getattr(signals, name).disconnect(receive)


@pytest.fixture
def committed():
    """A block whose on_commit callbacks are called at its end, as if it had been committed."""

    @contextmanager
    def block():
        with TestCase.captureOnCommitCallbacks(execute=True):
            yield

    return block
