"""The framework's signals: sent like its own backends do, and only after commit."""

import logging
from contextlib import contextmanager
from traceback import format_exception

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_mqlite.exceptions import DeadLettered, Discarded
from django_mqlite.models import Message
from django_mqlite.task_backend import MqliteBackend
from django_mqlite.task_backend.compat import signals
from django_mqlite.task_backend.runner import run
from django_mqlite.verbs import sweeps
from django_mqlite.worker.executor import Executor

from . import calls

pytestmark = pytest.mark.django_db

FRAMEWORK_LOGGERS = ("django.tasks", "django_tasks")


@contextmanager
def receiving(name, receive):
    signal = getattr(signals, name)
    signal.connect(receive)
    try:
        yield
    finally:
        signal.disconnect(receive)


def names(sent):
    return [name for name, *_ in sent]


@pytest.mark.django_db(transaction=True)
def test_signals_of_a_successful_task_are_sent_once(tasks_queue, finish, sent):
    result = finish(calls.note)

    assert sent == [
        ("task_enqueued", MqliteBackend, "READY", result.id),
        ("task_started", MqliteBackend, "RUNNING", result.id),
        ("task_finished", MqliteBackend, "SUCCESSFUL", result.id),
    ]


@pytest.mark.django_db(transaction=True)
def test_task_enqueued_is_sent_after_commit_and_not_after_rollback(tasks_queue, sent):
    with transaction.atomic():
        committed = calls.note.enqueue()
        assert sent == []
    with pytest.raises(RuntimeError), transaction.atomic():
        calls.note.enqueue()
        raise RuntimeError

    assert [(name, id) for name, _, _, id in sent] == [("task_enqueued", committed.id)]


def test_task_started_is_sent_for_each_attempt_and_task_finished_once(tasks_queue, finish, sent):
    result = finish(calls.fail.using(max_attempts=2))

    assert sent == [
        ("task_started", MqliteBackend, "RUNNING", result.id),
        ("task_started", MqliteBackend, "RUNNING", result.id),
        ("task_finished", MqliteBackend, "FAILED", result.id),
    ]


@pytest.mark.parametrize(("value", "status"), [(42, "SUCCESSFUL"), (complex(1, 2), "FAILED")])
def test_task_finished_has_the_stored_result(tasks_queue, perform, value, status):
    received = []

    def receive(sender, task_result, **kwargs):
        received.append((task_result, calls.perform.get_result(task_result.id)))

    with receiving("task_finished", receive):
        perform(lambda: value)

    ((result, stored),) = received
    assert result == stored
    assert result.status == status


def test_task_that_the_reaper_ends_is_finished(tasks_queue, sent, clock, commit):
    result = calls.note.using(max_attempts=1).enqueue()
    Message.objects.claim("default")
    clock.advance(30)
    with commit():
        sweeps.release_expired_leases("default", limit=10)

    assert sent == [("task_finished", MqliteBackend, "FAILED", result.id)]


def test_task_finished_is_not_sent_after_a_lost_lease(tasks_queue, sent, clock, commit):
    calls.meaning_of_life.enqueue()
    (message,) = Message.objects.claim("default")
    outcome = run(message).outcome
    clock.advance(30)
    with commit():
        assert not Message.objects.settle(message, outcome)

    assert names(sent) == ["task_started"]


def test_task_finished_is_not_sent_for_a_plain_dead_letter(tasks_queue, sent, commit):
    Message.objects.enqueue("default", {})
    (message,) = Message.objects.claim("default")
    with commit():
        message.reject("Broken")

    assert sent == []


@pytest.mark.parametrize("name", ["task_enqueued", "task_started", "task_finished"])
@pytest.mark.django_db(transaction=True)
def test_receiver_that_raises_has_no_effect(tasks_queue, finish, name):
    def receive(**kwargs):
        raise RuntimeError("a receiver")

    with receiving(name, receive):
        assert finish(calls.meaning_of_life).return_value == 42


@pytest.mark.django_db(transaction=True)
def test_receiver_of_an_async_task_may_use_the_database(tasks_queue):
    """Django would refuse this if the signal were sent in the event loop itself."""
    counts = []

    def receive(task_result, **kwargs):
        counts.append(Message.objects.filter(message_id=task_result.id).count())

    calls.note_async.enqueue()
    (message,) = Message.objects.claim("default")
    executor = Executor(handlers={}, using="default")
    with receiving("task_started", receive):
        executor.contexts.new_context().run(async_to_sync(executor.run_async), message)

    assert counts == [1]


def test_framework_logs_status_changes_and_exceptions(tasks_queue, finish, caplog):
    with caplog.at_level(logging.INFO):
        result = finish(calls.note)
        failed = finish(calls.fail.using(max_attempts=1))

    records = [record for record in caplog.records if record.name in FRAMEWORK_LOGGERS]
    assert {(record.levelname, record.getMessage()) for record in records} >= {
        ("INFO", f"Task id={result.id} path={calls.note.module_path} state=RUNNING"),
        ("INFO", f"Task id={result.id} path={calls.note.module_path} state=SUCCESSFUL"),
        ("ERROR", f"Task id={failed.id} path={calls.fail.module_path} state=FAILED"),
    }
    errors = [record.exc_info for record in records if record.levelname == "ERROR"]
    assert [kind for kind, _, _ in errors] == [ValueError]
    assert "runner.py" not in format_exception(errors[0][1])[1]


def test_framework_logs_the_reason_of_a_task_that_did_not_run(tasks_queue, caplog, commit, clock):
    discarded, expired = calls.note.enqueue(), calls.note.using(ttl=5).enqueue()
    clock.advance(5)
    with commit():
        Message.objects.discard(Message.objects.get(message_id=discarded.id).pk)
        sweeps.expire("default", limit=10)

    records = [record for record in caplog.records if record.name in FRAMEWORK_LOGGERS]
    assert [(record.exc_info[0], str(record.exc_info[1])) for record in records] == [
        (Discarded, "Discarded: while it was active"),
        (DeadLettered, "TTLExpired: its time to live was over"),
    ]
    assert f"id={expired.id}" in records[1].getMessage()
