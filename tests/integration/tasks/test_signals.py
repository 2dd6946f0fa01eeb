"""The framework's signals: as its own backends send them, and never before it is true."""

import logging

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_mqlite.models import Message
from django_mqlite.task_backend import MqliteBackend
from django_mqlite.task_backend.compat import signals
from django_mqlite.task_backend.runner import run
from django_mqlite.verbs import sweeps
from django_mqlite.worker.executor import Executor

from . import calls

pytestmark = pytest.mark.django_db


def names(heard):
    return [name for name, *_ in heard]


@pytest.mark.django_db(transaction=True)
def test_each_signal_is_sent_once_by_the_class_of_the_backend(tasks_queue, run_all, heard):
    result = calls.note.enqueue()
    run_all()

    assert heard == [
        ("task_enqueued", MqliteBackend, "READY", result.id),
        ("task_started", MqliteBackend, "RUNNING", result.id),
        ("task_finished", MqliteBackend, "SUCCESSFUL", result.id),
    ]


@pytest.mark.django_db(transaction=True)
def test_enqueued_waits_for_the_commit_and_is_not_sent_for_what_is_undone(tasks_queue, heard):
    with transaction.atomic():
        kept = calls.note.enqueue()
        assert heard == []
    with pytest.raises(RuntimeError), transaction.atomic():
        calls.note.enqueue()
        raise RuntimeError

    assert [(name, id) for name, _, _, id in heard] == [("task_enqueued", kept.id)]


def test_in_a_testcase_it_is_sent_when_the_test_says_so(tasks_queue, heard, committed):
    with committed():
        calls.note.enqueue()
        assert heard == []

    assert names(heard) == ["task_enqueued"]


def test_started_is_sent_for_each_attempt_and_finished_once(tasks_queue, run_all, heard):
    result = calls.fail.using(max_attempts=2).enqueue()
    run_all()

    assert heard == [
        ("task_started", MqliteBackend, "RUNNING", result.id),
        ("task_started", MqliteBackend, "RUNNING", result.id),
        ("task_finished", MqliteBackend, "FAILED", result.id),
    ]


@pytest.mark.parametrize(
    ("task", "status"), [(calls.meaning_of_life, "SUCCESSFUL"), (calls.complex_value, "FAILED")]
)
def test_the_result_that_finished_brings_is_the_one_in_the_database(
    tasks_queue, run_all, task, status
):
    brought = []

    def receive(sender, task_result, **kwargs):
        brought.append((task_result, task.get_result(task_result.id)))

    signals.task_finished.connect(receive)
    try:
        task.enqueue()
        run_all()
    finally:
        signals.task_finished.disconnect(receive)

    ((told, stored),) = brought
    assert told == stored
    assert told.status == status


def test_a_task_that_the_reaper_ends_is_finished_as_well(tasks_queue, heard, clock, committed):
    result = calls.note.using(max_attempts=1).enqueue()
    Message.objects.claim("default")
    clock.advance(30)
    with committed():
        sweeps.release_expired("default", limit=10)

    assert heard == [("task_finished", MqliteBackend, "FAILED", result.id)]


def test_what_ends_after_its_lease_was_lost_is_not_finished(tasks_queue, heard, clock, committed):
    calls.meaning_of_life.enqueue()
    (message,) = Message.objects.claim("default")
    outcome = run(message).outcome
    clock.advance(30)
    with committed():
        assert not Message.objects.settle(message, outcome)

    assert names(heard) == ["task_started"]


def test_a_plain_dead_letter_is_no_finished_task(tasks_queue, heard, committed):
    Message.objects.enqueue("default", {})
    (message,) = Message.objects.claim("default")
    with committed():
        message.reject("Broken")

    assert heard == []


@pytest.mark.parametrize("name", ["task_enqueued", "task_started", "task_finished"])
@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_raises_stops_nothing(tasks_queue, run_all, name):
    def receive(**kwargs):
        raise RuntimeError("a receiver")

    getattr(signals, name).connect(receive)
    try:
        result = calls.meaning_of_life.enqueue()
        run_all()
    finally:
        getattr(signals, name).disconnect(receive)

    result.refresh()
    assert result.return_value == 42


@pytest.mark.django_db(transaction=True)
def test_a_receiver_of_an_async_task_may_use_the_database(tasks_queue):
    """Sent in the event loop itself it could not."""
    seen = []

    def receive(task_result, **kwargs):
        seen.append(Message.objects.filter(message_id=task_result.id).count())

    calls.note_async.enqueue()
    (message,) = Message.objects.claim("default")
    signals.task_started.connect(receive)
    try:
        executor = Executor(handlers={}, using="default")
        executor.contexts.new_context().run(async_to_sync(executor.run_async), message)
    finally:
        signals.task_started.disconnect(receive)

    assert seen == [1]


def test_the_frameworks_own_log_has_its_lines(tasks_queue, run_all, caplog):
    with caplog.at_level(logging.INFO):
        result = calls.note.enqueue()
        failed = calls.reject.enqueue()
        run_all()

    said = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name in ("django.tasks", "django_tasks")
    ]
    assert ("INFO", f"Task id={result.id} path={calls.note.module_path} state=RUNNING") in said
    assert ("INFO", f"Task id={result.id} path={calls.note.module_path} state=SUCCESSFUL") in said
    assert ("ERROR", f"Task id={failed.id} path={calls.reject.module_path} state=FAILED") in said


def test_the_frameworks_log_of_a_failure_has_the_exception(tasks_queue, run_all, caplog):
    calls.leave.using(max_attempts=1).enqueue()
    run_all()

    (kind,) = [
        record.exc_info[0]
        for record in caplog.records
        if record.name in ("django.tasks", "django_tasks") and record.levelname == "ERROR"
    ]
    assert kind is SystemExit
