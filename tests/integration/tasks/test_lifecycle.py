"""A task from its enqueueing to its result, as the framework's own backends have it."""

import pickle
from contextlib import suppress
from datetime import timedelta

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import DeadLetter, Message
from django_mqlite.task_backend import MqliteBackend
from django_mqlite.task_backend.compat import (
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
)
from django_mqlite.verbs import sweeps

from . import calls

pytestmark = pytest.mark.django_db

BACKEND = task_backends["default"]


def ascii_start(value):
    """What a parameter is called."""
    return repr(value)[:10]


def test_the_backend_can_do_all_that_the_framework_knows():
    assert isinstance(BACKEND, MqliteBackend)
    assert BACKEND.supports_defer
    assert BACKEND.supports_async_task
    assert BACKEND.supports_get_result
    assert BACKEND.supports_priority


@pytest.mark.parametrize("task", [calls.note, calls.note_async], ids=["function", "coroutine"])
def test_a_task_that_is_enqueued_is_ready(tasks_queue, clock, task):
    result = task.enqueue(1, two=3)

    assert result.status == TaskResultStatus.READY
    assert (result.args, result.kwargs) == ([1], {"two": 3})
    assert (result.enqueued_at, result.started_at, result.finished_at) == (clock.now, None, None)
    assert result.last_attempted_at is None
    assert result.task == task
    assert (result.attempts, result.worker_ids, result.errors) == (0, [], [])
    assert result.backend == "default"
    assert not result.is_finished
    with pytest.raises(ValueError, match="Task has not finished yet"):
        assert result.return_value


def test_the_backends_own_enqueue_takes_sequences_and_mappings(tasks_queue, run_all):
    result = BACKEND.enqueue(calls.note, [1], {"two": 3})

    run_all()

    assert calls.seen == [((1,), {"two": 3})]
    assert result.args == [1]


def test_a_task_can_be_enqueued_and_asked_for_in_async_code(tasks_queue, run_all):
    async def enqueue():
        first = await calls.meaning_of_life.aenqueue()
        second = await BACKEND.aenqueue(calls.meaning_of_life, (), {})
        return first, second

    first, second = async_to_sync(enqueue)()
    run_all()

    async def look():
        await first.arefresh()
        return await calls.meaning_of_life.aget_result(second.id)

    again = async_to_sync(look)()
    assert [first.return_value, again.return_value] == [42, 42]


@pytest.mark.parametrize("task", [calls.note, calls.note_async], ids=["function", "coroutine"])
def test_a_task_that_has_run_is_successful(tasks_queue, run_all, clock, task):
    result = task.enqueue(1, two=3)
    assert run_all() == 1

    result.refresh()

    assert calls.seen == [((1,), {"two": 3})]
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.is_finished
    assert result.return_value is None
    assert result.enqueued_at <= result.started_at <= result.finished_at == clock.now
    assert result.last_attempted_at == result.started_at
    assert (result.attempts, result.worker_ids, result.errors) == (1, ["drain()"], [])


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (42, 42),
        (None, None),
        (False, False),
        ('é\0\u2028😀"\\', 'é\0\u2028😀"\\'),
        ([1, (2, 3)], [1, [2, 3]]),
        ({"a": {}}, {"a": {}}),
        (2**70, 2**70),
        (b"x", "x"),
    ],
    ids=ascii,
)
def test_what_a_task_returns_is_its_return_value(tasks_queue, run_all, monkeypatch, value, kept):
    monkeypatch.setattr(calls, "returned", value)
    result = calls.give.enqueue()

    run_all()

    assert calls.give.get_result(result.id).return_value == kept


def test_a_running_task_is_running(tasks_queue, clock):
    result = calls.note.enqueue()
    Message.objects.claim("default", worker="host:1")

    result.refresh()

    assert result.status == TaskResultStatus.RUNNING
    assert (result.started_at, result.last_attempted_at) == (clock.now, clock.now)
    assert result.worker_ids == ["host:1"]
    assert not result.is_finished


@pytest.mark.parametrize(
    ("task", "error", "text"),
    [
        (calls.fail, ValueError, "This task failed"),
        (calls.fail_async, ValueError, "This task failed"),
        (calls.leave, SystemExit, "This task left"),
        (calls.complex_error, ValueError, "raise ValueError(ValueError("),
        (calls.unprintable_error, calls.Unprintable, "Unprintable"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_task_that_fails_every_time_is_failed_with_each_error(
    tasks_queue, run_all, task, error, text
):
    result = task.using(max_attempts=3).enqueue()
    assert run_all() == 3

    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    assert result.is_finished
    assert [failed.exception_class for failed in result.errors] == [error] * 3
    assert all(text in failed.traceback for failed in result.errors)
    assert "calls.py" in result.errors[0].traceback
    assert result.started_at < result.last_attempted_at <= result.finished_at
    assert result.attempts == 3
    with pytest.raises(ValueError, match="Task failed"):
        assert result.return_value


def test_an_interrupt_is_of_whoever_runs_the_task(tasks_queue, run_all):
    calls.interrupt.enqueue()

    with pytest.raises(KeyboardInterrupt):
        run_all()


def test_between_two_attempts_it_is_ready_again_and_says_what_went_wrong(tasks_queue, run_once):
    result = calls.fail.enqueue()
    run_once()

    result.refresh()

    assert result.status == TaskResultStatus.READY
    assert result.attempts == 1
    assert [error.exception_class for error in result.errors] == [ValueError]


def test_a_task_that_succeeds_at_last_keeps_its_errors(tasks_queue, run_all):
    result = calls.fail.enqueue(2)
    assert run_all() == 3

    result.refresh()

    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, "at last")
    assert len(result.errors) == 2
    assert result.attempts == 3


def test_a_task_that_rejects_itself_is_failed_at_once(tasks_queue, run_all):
    result = calls.reject.enqueue()
    assert run_all() == 1

    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    assert "no user 7" in result.errors[0].traceback


def test_a_task_may_say_when_it_is_to_be_retried(tasks_queue, run_once, clock, message_of):
    result = calls.retry.enqueue()
    run_once()

    assert message_of(result).visible_at == clock.now + timedelta(seconds=90)


def test_a_redriven_task_is_ready_and_remembers_its_attempts(tasks_queue, run_all, message_of):
    result = calls.fail.using(max_attempts=2).enqueue(2)
    run_all()
    DeadLetter.objects.redrive([message_of(result).pk])

    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert (result.attempts, result.finished_at) == (2, None)

    assert run_all() == 1
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3)


def test_more_attempts_than_errors_that_are_kept_are_still_counted(tasks_queue, run_all):
    result = calls.fail.using(max_attempts=25).enqueue()
    run_all()

    result.refresh()

    assert (result.attempts, len(result.errors)) == (25, 20)


def test_a_task_whose_lease_runs_out_for_good_is_failed_with_the_reason(tasks_queue, clock):
    result = calls.note.using(max_attempts=1).enqueue()
    Message.objects.claim("default", worker="host:1")
    clock.advance(30)
    sweeps.release_expired("default", limit=10)

    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    assert result.worker_ids == ["host:1"]
    (error,) = result.errors
    assert error.exception_class.__name__ == "LeaseExpired"
    assert "neither settled nor renewed" in error.traceback


def test_a_task_that_was_abandoned_with_a_text_has_an_error_class_that_exists(tasks_queue):
    result = calls.note.enqueue()
    (message,) = Message.objects.claim("default")
    message.abandon(error="the worker was stopped")

    result.refresh()

    assert result.errors[0].exception_class.__name__ == "DeliveryFailed"
    assert result.errors[0].traceback == "the worker was stopped"


def test_the_context_knows_the_attempt_and_the_result(tasks_queue, run_all):
    result = calls.attempt.enqueue()
    run_all()

    result.refresh()

    assert calls.seen == [(1, result.id), (2, result.id), (3, result.id)]
    assert result.return_value == 3


def test_the_context_comes_before_the_arguments(tasks_queue, run_all):
    result = calls.with_context.enqueue("x")
    run_all()

    result.refresh()

    assert result.return_value == [result.id, "x"]


# Its place in the caller's transaction


@pytest.mark.django_db(transaction=True)
def test_enqueueing_commits_with_the_caller_or_not_at_all(tasks_queue):
    with transaction.atomic():
        kept = calls.note.enqueue()
    with pytest.raises(RuntimeError), transaction.atomic():
        undone = calls.note.enqueue()
        assert calls.note.get_result(undone.id).status == TaskResultStatus.READY
        raise RuntimeError

    assert calls.note.get_result(kept.id).id == kept.id
    with pytest.raises(TaskResultDoesNotExist):
        calls.note.get_result(undone.id)


@pytest.mark.django_db(transaction=True)
def test_aenqueue_joins_the_transaction_of_its_caller(tasks_queue):
    with pytest.raises(RuntimeError), transaction.atomic():
        undone = async_to_sync(calls.note.aenqueue)()
        raise RuntimeError

    with pytest.raises(TaskResultDoesNotExist):
        calls.note.get_result(undone.id)


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks can be pickled from Django 6.1 on")
def test_a_task_and_its_result_can_be_pickled(tasks_queue):
    result = calls.twice.using(priority=3).enqueue()

    assert pickle.loads(pickle.dumps(calls.twice)) == calls.twice
    assert pickle.loads(pickle.dumps(result)) == result


# Results that are asked for


def test_a_result_is_found_by_its_id(tasks_queue):
    result = calls.note.enqueue(1)

    assert calls.note.get_result(result.id) == result
    assert BACKEND.get_result(result.id) == result


@pytest.mark.parametrize("id", ["123", 456, "", "\0", "x" * 5_000, None], ids=ascii_start)
def test_a_result_that_is_not_there_does_not_exist(tasks_queue, id):
    with pytest.raises(TaskResultDoesNotExist):
        calls.note.get_result(id)
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(calls.note.aget_result)(id)


def test_a_result_is_found_by_the_index_of_ids(tasks_queue):
    with CaptureQueriesContext(connection) as queries, suppress(TaskResultDoesNotExist):
        calls.note.get_result("123")
    (asked,) = queries
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {asked['sql']}")
        plan = [step for *_, step in cursor.fetchall()]

    assert plan == ["SEARCH mqlite_messages USING INDEX mqlite_messages_message_id (message_id=?)"]


def test_a_plain_message_with_the_id_is_no_result(tasks_queue):
    Message.objects.enqueue("default", {}, message_id="123")

    with pytest.raises(TaskResultDoesNotExist):
        calls.note.get_result("123")


def test_the_result_of_another_task_does_not_match(tasks_queue):
    result = calls.note.enqueue()

    with pytest.raises(TaskResultMismatch, match="Task does not match"):
        calls.meaning_of_life.get_result(result.id)
    with pytest.raises(TaskResultMismatch, match="Task does not match"):
        async_to_sync(calls.meaning_of_life.aget_result)(result.id)


@pytest.mark.parametrize(("after", "there"), [(timedelta(days=7), False), (6.9 * 86_400, True)])
def test_a_result_is_kept_for_seven_days(tasks_queue, run_all, clock, after, there):
    result = calls.note.enqueue()
    run_all()
    clock.advance(after)
    sweeps.prune_completed("default", limit=10)

    assert Message.objects.filter(message_id=result.id).exists() is there


@pytest.mark.parametrize(
    ("ttl", "kept_for"), [(60, 60), (timedelta(hours=1), 3_600), (0.5, 0.5), (0, None)]
)
def test_a_result_is_kept_as_long_as_the_options_say(
    tasks_queue, run_all, clock, settings, ttl, kept_for
):
    options = {"QUEUES": [], "OPTIONS": {"RESULT_TTL": ttl}}
    settings.TASKS = {"default": {**settings.TASKS["default"], **options}}
    result = calls.note.enqueue()
    run_all()

    kept = Message.objects.filter(message_id=result.id).first()

    assert (kept and kept.kept_until - kept.finished_at) == (
        None if kept_for is None else timedelta(seconds=kept_for)
    )


def test_plain_messages_of_the_same_queue_are_kept_as_the_queue_says(tasks_queue, run_all):
    plain = Message.objects.enqueue("default", {})
    calls.note.enqueue()
    for message in Message.objects.claim("default"):
        message.complete()
    run_all()

    assert not Message.objects.filter(pk=plain.pk).exists()
    assert Message.objects.filter(state="completed").count() == 1


# What it returns cannot be kept


@pytest.mark.parametrize(
    ("task", "args", "why"),
    [
        (calls.complex_value, (), "Unsupported type"),
        (calls.large_value, (2**20,), "over the limit of 1,048,576"),
        (calls.not_a_number, (), "which JSON does not have"),
        (calls.number_keys, (), "keys in JSON are strings"),
        (calls.endless, (), "RecursionError"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_return_value_that_cannot_be_kept_fails_the_task_and_does_not_run_it_again(
    tasks_queue, run_all, task, args, why, message_of
):
    result = task.enqueue(*args)
    assert run_all() == 1

    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class.__name__ == "ReturnValueRefused"
    assert issubclass(error.exception_class, TypeError)
    assert why in error.traceback
    assert message_of(result).dead_letter_reason == "ReturnValueRefused"


def test_a_return_value_may_be_as_large_as_a_message(tasks_queue, run_all):
    result = calls.large_value.enqueue(2**20 - 2)
    run_all()

    result.refresh()

    assert len(result.return_value) == 2**20 - 2
