"""A task from enqueue() to its result, with the behaviour of the framework's own backends."""

import pickle
from contextlib import suppress
from datetime import timedelta

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_mqlite import Retry
from django_mqlite.models import DeadLetter, Message
from django_mqlite.task_backend import MqliteBackend
from django_mqlite.task_backend.compat import (
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
)
from django_mqlite.verbs import sweeps
from tests.support.verbs import claim_one

from . import calls

pytestmark = pytest.mark.django_db

BACKEND = task_backends["default"]
READY, RUNNING, FAILED, SUCCESSFUL = (
    TaskResultStatus[name] for name in ("READY", "RUNNING", "FAILED", "SUCCESSFUL")
)
either_kind = pytest.mark.parametrize(
    "task", [calls.note, calls.note_async], ids=["function", "coroutine"]
)


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


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda task: BACKEND.enqueue(task, [1], {"two": 3}),
        lambda task: async_to_sync(BACKEND.aenqueue)(task, (1,), {"two": 3}),
        lambda task: async_to_sync(task.aenqueue)(1, two=3),
    ],
    ids=["backend", "async backend", "async task"],
)
def test_backend_and_async_code_can_enqueue_tasks(tasks_queue, run_all, enqueue):
    result = enqueue(calls.note)
    run_all()
    async_to_sync(result.arefresh)()

    assert calls.seen == [((1,), {"two": 3})]
    assert (result.status, result.args, result.kwargs) == (SUCCESSFUL, [1], {"two": 3})
    assert async_to_sync(calls.note.aget_result)(result.id) == result


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
        ("x" * (2**20 - 2), "x" * (2**20 - 2)),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_return_value_is_stored_as_json(tasks_queue, perform, value, stored):
    assert perform(lambda: value).return_value == stored


def test_claimed_task_is_running(tasks_queue, clock):
    result = calls.note.enqueue()
    Message.objects.claim("default", worker="host:1")

    result.refresh()

    assert result.status == RUNNING
    assert (result.started_at, result.last_attempted_at) == (clock.now, clock.now)
    assert result.worker_ids == ["host:1"]
    assert not result.is_finished


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raising(error):
    """Return an action that raises the error."""

    def raise_error():
        raise error

    return raise_error


@pytest.mark.parametrize(
    ("task", "error", "text"),
    [
        (calls.perform, ValueError("This task failed"), "This task failed"),
        (calls.perform_async, ValueError("This task failed"), "This task failed"),
        (calls.perform, SystemExit("This task left"), "This task left"),
        (calls.perform, ValueError(ValueError("nested")), "nested"),
        (calls.perform, UnprintableError(), "UnprintableError"),
    ],
    ids=["function", "coroutine", "exit", "nested", "unprintable"],
)
def test_task_that_always_raises_is_failed_with_every_error(
    tasks_queue, perform, task, error, text
):
    result = perform(raising(error), task=task, max_attempts=3)

    assert result.status == FAILED
    assert result.is_finished
    assert [failed.exception_class for failed in result.errors] == [type(error)] * 3
    assert all(text in failed.traceback for failed in result.errors)
    assert "calls.py" in result.errors[0].traceback
    assert result.started_at < result.last_attempted_at <= result.finished_at
    assert result.attempts == 3
    with pytest.raises(ValueError, match="Task failed"):
        assert result.return_value


def test_keyboard_interrupt_propagates_from_drain(tasks_queue, perform):
    with pytest.raises(KeyboardInterrupt):
        perform(raising(KeyboardInterrupt()))


def test_task_waiting_for_a_retry_is_ready_and_has_errors(
    tasks_queue, run_once, monkeypatch, clock, message_of
):
    monkeypatch.setattr(calls, "action", raising(Retry("not yet", delay=90)))
    result = calls.perform.enqueue()
    run_once()

    result.refresh()

    assert (result.status, result.attempts) == (READY, 1)
    assert [error.exception_class for error in result.errors] == [Retry]
    assert message_of(result).visible_at == clock.now + timedelta(seconds=90)


def test_task_that_succeeds_after_retries_keeps_its_errors(tasks_queue, finish):
    result = finish(calls.fail, 2)

    assert (result.status, result.return_value) == (SUCCESSFUL, "at last")
    assert (result.attempts, len(result.errors)) == (3, 2)


def test_task_that_raises_reject_is_failed_at_once(tasks_queue, finish):
    result = finish(calls.reject)

    assert (result.status, result.attempts) == (FAILED, 1)
    assert "no user 7" in result.errors[0].traceback


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


def test_context_has_attempt_and_result_and_comes_first(tasks_queue, finish):
    result = finish(calls.attempt, "x")

    assert calls.seen == [(1, result.id, "x"), (2, result.id, "x"), (3, result.id, "x")]
    assert result.return_value == 3


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
    Message.objects.enqueue("default", {}, message_id="123")

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


def test_result_of_another_task_does_not_match(tasks_queue):
    result = calls.note.enqueue()
    task = calls.meaning_of_life

    for get_result in (task.get_result, async_to_sync(task.aget_result)):
        with pytest.raises(TaskResultMismatch, match="Task does not match"):
            get_result(result.id)


# Retention


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 7 * 86_400),
        ({"RESULT_TTL": 60}, 60),
        ({"RESULT_TTL": timedelta(hours=1)}, 3_600),
        ({"RESULT_TTL": 0.5}, 0.5),
    ],
)
def test_result_ttl_sets_how_long_results_are_kept(
    tasks_queue, finish, set_tasks, message_of, clock, options, seconds
):
    set_tasks(OPTIONS=options)

    message = message_of(finish(calls.note))

    assert message.kept_until - message.finished_at == timedelta(seconds=seconds)
    clock.advance(seconds)
    assert sweeps.prune_completed("default", limit=10)


@pytest.mark.parametrize(("options", "kept"), [({}, 1), ({"RESULT_TTL": 0}, 0)])
def test_only_results_of_tasks_are_kept_and_none_with_a_ttl_of_zero(
    tasks_queue, finish, set_tasks, options, kept
):
    set_tasks(OPTIONS=options)
    Message.objects.enqueue("default", {})
    claim_one("default").complete()
    with suppress(TaskResultDoesNotExist):
        finish(calls.note)

    assert list(Message.objects.values_list("state", flat=True)) == ["completed"] * kept


# Return values that cannot be stored


def endless():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (complex(1, 2), "Unsupported type"),
        ("x" * 2**20, "over the limit of 1,048,576"),
        ({"a": float("nan")}, "which JSON cannot represent"),
        ({1: "one"}, "keys in JSON are strings"),
        (endless(), "RecursionError"),
    ],
    ids=["complex", "large", "nan", "keys", "endless"],
)
def test_refused_return_value_fails_the_task_without_a_retry(
    tasks_queue, perform, value, reason, message_of
):
    result = perform(lambda: value)

    assert (result.status, result.attempts) == (FAILED, 1)
    (error,) = result.errors
    assert error.exception_class.__name__ == "ReturnValueRefused"
    assert issubclass(error.exception_class, TypeError)
    assert reason in error.traceback
    assert message_of(result).dead_letter_reason == "ReturnValueRefused"
