"""Queues for tasks, and workers without a process."""

from functools import partial

import pytest
from django.test import TestCase

from django_mqlite.models import Message
from django_mqlite.task_backend.compat import signals
from django_mqlite.testing import drain

from . import calls


@pytest.fixture(autouse=True)
def nothing_seen():
    calls.seen.clear()
    calls.failures.clear()


@pytest.fixture
def tasks_queue(clock, make_queue):
    """The queue that a task is enqueued to by default."""
    return make_queue("default")


@pytest.fixture
def unique_queue(clock, make_queue):
    """The same queue with a deduplication window."""
    return make_queue("default", dedup_window=600)


@pytest.fixture
def run_all():
    """Run everything that is due, with its retries, and return the number of attempts."""
    return lambda: len(drain("default"))


@pytest.fixture
def run_once():
    """Run one attempt of each task that is due."""
    return lambda: drain("default", retries=False)


@pytest.fixture
def finish(run_all):
    """Enqueue a call, run all its attempts and return its result."""

    def finish(task, /, *args, **kwargs):
        result = task.enqueue(*args, **kwargs)
        run_all()
        result.refresh()
        return result

    return finish


@pytest.fixture
def perform(finish, monkeypatch):
    """Run a task that performs an action, with all its attempts, and return its result."""

    def perform(action, *, task=calls.perform, **options):
        monkeypatch.setattr(calls, "action", action)
        return finish(task.using(**options))

    return perform


@pytest.fixture
def message_of():
    """Return the message of a result."""
    return lambda result: Message.objects.get(message_id=result.id)


@pytest.fixture
def sent():
    """The signals sent so far: name, sender, and status and id of the result."""
    sent = []

    def receiver(name):
        def receive(sender, task_result, **kwargs):
            sent.append((name, sender, str(task_result.status), task_result.id))

        return receive

    receivers = {
        name: receiver(name) for name in ("task_enqueued", "task_started", "task_finished")
    }
    for name, receive in receivers.items():
        getattr(signals, name).connect(receive)
    yield sent
    for name, receive in receivers.items():
        getattr(signals, name).disconnect(receive)


@pytest.fixture
def commit():
    """Run the on_commit callbacks of a block at its end."""
    return partial(TestCase.captureOnCommitCallbacks, execute=True)


@pytest.fixture
def set_tasks(settings):
    """Set entries of the default backend in TASKS, and further backends."""

    def set_tasks(others=None, **entries):
        settings.TASKS = {"default": {**settings.TASKS["default"], **entries}, **(others or {})}

    return set_tasks
