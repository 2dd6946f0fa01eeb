"""A task from enqueue() to its result, with the behaviour of the framework's own backends."""

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
READY, RUNNING, FAILED, SUCCESSFUL = (
    TaskResultStatus[name] for name in ("READY", "RUNNING", "FAILED", "SUCCESSFUL")
)
either_kind = pytest.mark.parametrize(
    "task", [calls.note, calls.note_async], ids=["function", "coroutine"]
)


def name_of(value):
    return getattr(value, "name", "")


def test_backend_supports_every_feature_of_the_framework():
    assert isinstance(BACKEND, MqliteBackend)
    assert BACKEND.supports_defer
    assert BACKEND.supports_async_task
    assert BACKEND.supports_get_result
    assert BACKEND.supports_priority


@either_kind
def test_enqueued_task_is_ready(tasks_queue, clock, task):
    result = task.enqueue(1, two=3)

    assert result.status == READY
    assert (result.args, result.kwargs) == ([1], {"two": 3})
    assert (result.enqueued_at, result.started_at, result.finished_at) == (clock.now, None, None)
    assert result.last_attempted_at is None
    assert result.task == task
    assert (result.attempts, result.worker_ids, result.errors) == (0, [], [])
    assert result.backend == "default"
    assert not result.is_finished
    with pytest.raises(ValueError, match="Task has not finished yet"):
        assert result.return_value


def test_backend_enqueue_takes_sequences_and_mappings(tasks_queue, run_all):
    result = BACKEND.enqueue(calls.note, [1], {"two": 3})
    run_all()

    assert calls.seen == [((1,), {"two": 3})]
    assert result.args == [1]


def test_async_code_can_enqueue_tasks_and_get_results(tasks_queue, run_all):
    async def enqueue():
        first = await calls.meaning_of_life.aenqueue()
        second = await BACKEND.aenqueue(calls.meaning_of_life, (), {})
        return first, second

    first, second = async_to_sync(enqueue)()
    run_all()

    async def get_result():
        await first.arefresh()
        return await calls.meaning_of_life.aget_result(second.id)

    assert [async_to_sync(get_result)().return_value, first.return_value] == [42, 42]


@either_kind
def test_completed_task_is_successful(tasks_queue, finish, clock, task):
    result = finish(task, 1, two=3)

    assert calls.seen == [((1,), {"two": 3})]
    assert result.status == SUCCESSFUL
    assert result.is_finished
    assert result.return_value is None
    assert result.enqueued_at <= result.started_at <= result.finished_at == clock.now
    assert result.last_attempted_at == result.started_at
    assert (result.attempts, result.worker_ids, result.errors) == (1, ["drain()"], [])


@pytest.mark.parametrize(
    ("value", "stored"),
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
def test_return_value_is_stored_as_json(tasks_queue, finish, monkeypatch, value, stored):
    monkeypatch.setattr(calls, "returned", value)

    assert finish(calls.give).return_value == stored


def test_claimed_task_is_running(tasks_queue, clock):
    result = calls.note.enqueue()
    Message.objects.claim("default", worker="host:1")

    result.refresh()

    assert result.status == RUNNING
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
    ids=name_of,
)
def test_task_that_always_raises_is_failed_with_every_error(tasks_queue, finish, task, error, text):
    result = finish(task.using(max_attempts=3))

    assert result.status == FAILED
    assert result.is_finished
    assert [failed.exception_class for failed in result.errors] == [error] * 3
    assert all(text in failed.traceback for failed in result.errors)
    assert "calls.py" in result.errors[0].traceback
    assert result.started_at < result.last_attempted_at <= result.finished_at
    assert result.attempts == 3
    with pytest.raises(ValueError, match="Task failed"):
        assert result.return_value


def test_keyboard_interrupt_propagates_from_drain(tasks_queue, run_all):
    calls.interrupt.enqueue()

    with pytest.raises(KeyboardInterrupt):
        run_all()


def test_task_waiting_for_a_retry_is_ready_and_has_errors(tasks_queue, run_once):
    result = calls.fail.enqueue()
    run_once()

    result.refresh()

    assert (result.status, result.attempts) == (READY, 1)
    assert [error.exception_class for error in result.errors] == [ValueError]


def test_task_that_succeeds_after_retries_keeps_its_errors(tasks_queue, finish):
    result = finish(calls.fail, 2)

    assert (result.status, result.return_value) == (SUCCESSFUL, "at last")
    assert (result.attempts, len(result.errors)) == (3, 2)


def test_task_that_raises_reject_is_failed_at_once(tasks_queue, finish):
    result = finish(calls.reject)

    assert (result.status, result.attempts) == (FAILED, 1)
    assert "no user 7" in result.errors[0].traceback


def test_task_that_raises_retry_chooses_its_delay(tasks_queue, run_once, clock, message_of):
    result = calls.retry.enqueue()
    run_once()

    assert message_of(result).visible_at == clock.now + timedelta(seconds=90)


def test_redriven_task_is_ready_and_keeps_its_attempts(tasks_queue, finish, run_all, message_of):
    result = finish(calls.fail.using(max_attempts=2), 2)
    DeadLetter.objects.redrive([message_of(result).pk])

    result.refresh()
    assert result.status == READY
    assert (result.attempts, result.finished_at) == (2, None)

    assert run_all() == 1
    result.refresh()
    assert (result.status, result.attempts) == (SUCCESSFUL, 3)


def test_attempts_are_counted_beyond_the_errors_that_are_kept(tasks_queue, finish):
    result = finish(calls.fail.using(max_attempts=25))

    assert (result.attempts, len(result.errors)) == (25, 20)


def test_task_with_an_expired_lease_fails_with_the_reason(tasks_queue, clock):
    result = calls.note.using(max_attempts=1).enqueue()
    Message.objects.claim("default", worker="host:1")
    clock.advance(30)
    sweeps.release_expired_leases("default", limit=10)

    result.refresh()

    assert (result.status, result.worker_ids) == (FAILED, ["host:1"])
    (error,) = result.errors
    assert error.exception_class.__name__ == "LeaseExpired"
    assert "neither settled nor renewed" in error.traceback


def test_error_of_an_abandoned_task_has_an_existing_class(tasks_queue):
    result = calls.note.enqueue()
    (message,) = Message.objects.claim("default")
    message.abandon(error="the worker was stopped")

    result.refresh()

    (error,) = result.errors
    assert error.exception_class.__name__ == "DeliveryFailed"
    assert error.traceback == "the worker was stopped"


def test_context_has_the_attempt_and_the_result(tasks_queue, finish):
    result = finish(calls.attempt)

    assert calls.seen == [(1, result.id), (2, result.id), (3, result.id)]
    assert result.return_value == 3


def test_context_is_passed_before_the_arguments(tasks_queue, finish):
    result = finish(calls.with_context, "x")

    assert result.return_value == [result.id, "x"]


# Transactions


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "enqueue", [calls.note.enqueue, async_to_sync(calls.note.aenqueue)], ids=["sync", "async"]
)
def test_enqueue_commits_or_rolls_back_with_the_caller(tasks_queue, enqueue):
    with transaction.atomic():
        committed = enqueue()
    with pytest.raises(RuntimeError), transaction.atomic():
        rolled_back = enqueue()
        assert calls.note.get_result(rolled_back.id).status == READY
        raise RuntimeError

    assert calls.note.get_result(committed.id).id == committed.id
    with pytest.raises(TaskResultDoesNotExist):
        calls.note.get_result(rolled_back.id)


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks can be pickled from Django 6.1 on")
def test_task_and_result_can_be_pickled(tasks_queue):
    result = calls.twice.using(priority=3).enqueue()

    assert pickle.loads(pickle.dumps(calls.twice)) == calls.twice
    assert pickle.loads(pickle.dumps(result)) == result


# Results by id


def test_task_and_backend_return_the_result_of_an_id(tasks_queue):
    result = calls.note.enqueue(1)

    assert calls.note.get_result(result.id) == BACKEND.get_result(result.id) == result


@pytest.mark.parametrize(
    "id", ["123", 456, "", "\0", "x" * 5_000, None], ids=lambda id: repr(id)[:10]
)
def test_result_of_an_unknown_id_does_not_exist(tasks_queue, id):
    for get_result in (calls.note.get_result, async_to_sync(calls.note.aget_result)):
        with pytest.raises(TaskResultDoesNotExist):
            get_result(id)


def test_get_result_uses_the_index_of_ids(tasks_queue):
    with CaptureQueriesContext(connection) as queries, suppress(TaskResultDoesNotExist):
        calls.note.get_result("123")
    (query,) = queries
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
        plan = [step for *_, step in cursor.fetchall()]

    assert plan == ["SEARCH mqlite_messages USING INDEX mqlite_messages_message_id (message_id=?)"]


def test_plain_message_with_the_id_is_not_a_result(tasks_queue):
    Message.objects.enqueue("default", {}, message_id="123")

    with pytest.raises(TaskResultDoesNotExist):
        calls.note.get_result("123")


def test_result_of_another_task_does_not_match(tasks_queue):
    result = calls.note.enqueue()
    task = calls.meaning_of_life

    for get_result in (task.get_result, async_to_sync(task.aget_result)):
        with pytest.raises(TaskResultMismatch, match="Task does not match"):
            get_result(result.id)


# Retention


@pytest.mark.parametrize(("age", "exists"), [(timedelta(days=7), False), (6.9 * 86_400, True)])
def test_result_is_kept_for_seven_days_by_default(tasks_queue, finish, clock, age, exists):
    result = finish(calls.note)
    clock.advance(age)
    sweeps.prune_completed("default", limit=10)

    assert Message.objects.filter(message_id=result.id).exists() is exists


@pytest.mark.parametrize(("ttl", "seconds"), [(60, 60), (timedelta(hours=1), 3_600), (0.5, 0.5)])
def test_result_ttl_sets_how_long_results_are_kept(
    tasks_queue, finish, set_tasks, message_of, ttl, seconds
):
    set_tasks(OPTIONS={"RESULT_TTL": ttl})

    message = message_of(finish(calls.note))

    assert message.kept_until - message.finished_at == timedelta(seconds=seconds)


def test_result_ttl_of_zero_keeps_no_result(tasks_queue, run_all, set_tasks):
    set_tasks(OPTIONS={"RESULT_TTL": 0})
    calls.note.enqueue()

    assert run_all() == 1
    assert not Message.objects.exists()


def test_result_ttl_does_not_apply_to_plain_messages(tasks_queue, run_all):
    plain = Message.objects.enqueue("default", {})
    calls.note.enqueue()
    for message in Message.objects.claim("default"):
        message.complete()
    run_all()

    assert not Message.objects.filter(pk=plain.pk).exists()
    assert Message.objects.filter(state="completed").count() == 1


# Return values that cannot be stored


@pytest.mark.parametrize(
    ("task", "args", "reason"),
    [
        (calls.complex_value, (), "Unsupported type"),
        (calls.large_value, (2**20,), "over the limit of 1,048,576"),
        (calls.not_a_number, (), "which JSON cannot represent"),
        (calls.number_keys, (), "keys in JSON are strings"),
        (calls.endless, (), "RecursionError"),
    ],
    ids=name_of,
)
def test_refused_return_value_fails_the_task_without_a_retry(
    tasks_queue, finish, task, args, reason, message_of
):
    result = finish(task, *args)

    assert (result.status, result.attempts) == (FAILED, 1)
    (error,) = result.errors
    assert error.exception_class.__name__ == "ReturnValueRefused"
    assert issubclass(error.exception_class, TypeError)
    assert reason in error.traceback
    assert message_of(result).dead_letter_reason == "ReturnValueRefused"


def test_return_value_may_be_as_large_as_a_message(tasks_queue, finish):
    assert len(finish(calls.large_value, 2**20 - 2).return_value) == 2**20 - 2
