"""Options of tasks: the framework's, those of messages, and where they are set."""

from datetime import UTC, datetime, timedelta

import django
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import DuplicateConflict, enqueue
from django_mqlite.models import Message
from django_mqlite.task_backend import Draft, task_options
from django_mqlite.task_backend.compat import (
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task,
)
from django_mqlite.task_backend.runner import handler_of
from django_mqlite.verbs import sweeps
from django_mqlite.worker.executor import Executor
from tests.support.verbs import overwrite

from . import calls

pytestmark = pytest.mark.django_db

LATER = datetime(2026, 1, 2, tzinfo=UTC)
NAIVE = LATER.replace(tzinfo=None)


# Options of the framework


def test_higher_priority_runs_first(tasks_queue, run_all):
    for priority in (0, -100, 100):
        calls.note.using(priority=priority).enqueue(priority)
    run_all()

    assert [args for args, _ in calls.seen] == [(100,), (0,), (-100,)]


def test_queue_name_sets_the_queue(tasks_queue, make_queue):
    make_queue("mails")
    result = calls.note.using(queue_name="mails").enqueue()

    assert Message.objects.get().queue == "mails"
    assert calls.note.get_result(result.id).task.queue_name == "mails"


def test_queue_name_that_the_backend_lacks_is_invalid(set_tasks):
    elsewhere = calls.note.using(queue_name="elsewhere")
    set_tasks(QUEUES=["default"])

    with pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid for backend"):
        calls.note.using(queue_name="elsewhere")
    with pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid for backend"):
        elsewhere.enqueue()


@pytest.mark.parametrize("run_after", [LATER, timedelta(days=1)])
def test_run_after_delays_the_task(tasks_queue, run_all, clock, run_after):
    calls.note.using(run_after=run_after).enqueue()

    assert run_all() == 0
    clock.advance(86_400)
    assert run_all() == 1


def test_negative_run_after_is_refused(tasks_queue):
    with pytest.raises(ValueError, match="run_after"):
        calls.note.using(run_after=timedelta(seconds=-1))


def test_result_has_the_task_with_its_options(tasks_queue, run_once):
    options = {"max_attempts": 9, "backoff": 0.5, "ttl": timedelta(days=1)}
    task = calls.fail.using(priority=7, run_after=datetime(2025, 1, 1, tzinfo=UTC), **options)
    result = task.enqueue()
    run_once()  # the message now has the visible_at of its retry

    assert result.task == task
    assert calls.fail.get_result(result.id).task == task


def test_naive_run_after_is_in_the_projects_zone_without_use_tz(tasks_queue, settings):
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Berlin"
    calls.note.using(run_after=NAIVE).enqueue()

    assert Message.objects.get().visible_at == datetime(2026, 1, 1, 23, tzinfo=UTC)


def make_local():
    def local():
        """Not at a module level."""

    return local


def generator():
    yield


async def async_generator():
    yield


@pytest.mark.parametrize(
    ("function", "options", "error"),
    [
        (generator, {}, r"generator\(\) contains a yield"),
        (async_generator, {}, r"async_generator\(\) contains a yield"),
        (any, {}, "defined at a module level"),
        (make_local(), {}, "defined at a module level"),
        (calls.meaning_of_life.func, {"takes_context": True}, "takes context"),
    ],
    ids=["generator", "async generator", "builtin", "local", "without context"],
)
def test_unsuitable_function_is_no_task(function, options, error):
    with pytest.raises(InvalidTask, match=error):
        task(**options)(function)


def test_task_that_a_worker_cannot_import_is_refused_at_enqueue(tasks_queue, monkeypatch):
    with pytest.raises(InvalidTask, match=r"no task '.*\._hidden'.*name of its function"):
        calls.other_name.enqueue()
    note = calls.note
    monkeypatch.setattr(calls, "note", calls.bare)
    with pytest.raises(InvalidTask, match="is a different task"):
        note.enqueue()
    monkeypatch.setattr(note.func, "__module__", "__main__")
    with pytest.raises(InvalidTask, match="__main__"):
        note.enqueue()

    assert not Message.objects.exists()


# Options of messages


@pytest.mark.parametrize("delivery", [1, 2, 3])
def test_backoff_doubles_with_each_failure(tasks_queue, clock, run_once, message_of, delivery):
    result = calls.fail.using(backoff=100).enqueue()
    for _ in range(delivery):
        run_once()
        message = message_of(result)
        delay = (message.visible_at - clock.now).total_seconds()
        clock.advance(delay)

    assert 50 * 2 ** (delivery - 1) <= delay <= 100 * 2 ** (delivery - 1)


def test_backoff_grows_to_an_hour_or_stays_above(tasks_queue, clock, run_once, message_of):
    for backoff, limit in ((3_000, 3_600), (7_200, 7_200)):
        result = calls.fail.using(backoff=backoff).enqueue()
        overwrite(Message.objects.filter(message_id=result.id), delivery_count=7)
        run_once()

        delay = (message_of(result).visible_at - clock.now).total_seconds()
        assert limit / 2 <= delay <= limit


def test_task_without_a_backoff_uses_the_queues(tasks_queue):
    calls.fail.enqueue()
    (message,) = Message.objects.claim("default")
    assert Executor(handlers={}, using="default").is_async(message) is False

    assert handler_of(message).retries.delay_ms(1) is None


def test_tasks_of_a_group_run_one_after_the_other(tasks_queue, run_once):
    grouped = calls.fail.using(group_id="customer-7")
    grouped.enqueue()
    second = calls.note.using(group_id="customer-7").enqueue()
    run_once()

    second.refresh()

    assert calls.seen == ["fail"]  # the first waits for its retry, and the second for the first
    assert second.task.group_id == "customer-7"


def test_task_with_an_expired_ttl_fails_without_an_attempt(tasks_queue, run_all, clock):
    result = calls.note.using(ttl=60).enqueue()
    clock.advance(60)
    sweeps.expire("default", limit=10)

    assert run_all() == 0
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 0)
    (error,) = result.errors
    assert error.exception_class.__name__ == "DeadLettered"
    assert error.traceback.startswith("TTLExpired: ")


INVALID = [
    *(({"priority": number}, "whole number between -100 and 100") for number in (-101, 101, 3.1)),
    ({"run_after": NAIVE}, "aware"),
    ({"group_id": "g", "priority": 1}, "group_id cannot have a priority"),
    *(({"max_attempts": number}, "max_attempts") for number in (0, 1.5, True)),
    ({"backoff": -1}, "backoff"),
    ({"backoff": "soon"}, "backoff"),
    ({"ttl": 0}, "ttl"),
    ({"group_id": ""}, "group_id"),
    ({"message_id": 7}, "message_id"),
    ({"message_id": "x" * 1_025}, "message_id"),
]


@pytest.mark.parametrize(("options", "error"), INVALID, ids=range(len(INVALID)))
def test_invalid_option_is_refused_by_name(options, error):
    with pytest.raises(InvalidTask, match=error):
        calls.note.using(**options)


def test_unknown_option_is_refused_with_a_suggestion():
    with pytest.raises(TypeError, match=r"no option 'max_attempt'.*did you mean 'max_attempts'"):
        calls.note.using(max_attempt=3)


# Unique calls


def test_repeated_call_within_the_window_returns_the_first_result(unique_queue, run_all, clock):
    unique = calls.meaning_of_life.using(message_id="report-2026-01-01")
    first = unique.enqueue()

    assert first.id == "report-2026-01-01"
    assert unique.enqueue() == unique.using(run_after=LATER).enqueue() == first
    assert run_all() == 1
    finished = unique.enqueue()
    assert (finished.status, finished.return_value) == (TaskResultStatus.SUCCESSFUL, 42)

    clock.advance(600)
    assert unique.enqueue().status == TaskResultStatus.READY


def test_repeated_call_sends_no_task_enqueued(unique_queue, sent, commit):
    for _ in range(2):
        with commit():
            calls.note.using(message_id="a").enqueue()

    assert [name for name, *_ in sent] == ["task_enqueued"]


@pytest.mark.parametrize(
    "other",
    [
        lambda: calls.note.using(message_id="a").enqueue(2),
        lambda: calls.echo.using(message_id="a").enqueue(1),
        lambda: enqueue("default", {"args": [], "kwargs": {}}, message_id="a"),
    ],
    ids=["arguments", "task", "message"],
)
def test_message_id_of_another_call_is_a_conflict(unique_queue, run_all, other):
    first = calls.note.using(message_id="a").enqueue(1)

    with pytest.raises(DuplicateConflict, match="'a' with different data"):
        other()

    assert calls.note.using(message_id="a").enqueue(1).id == first.id
    assert run_all() == 1


def test_repeated_call_without_a_kept_result_raises(unique_queue, run_all, set_tasks):
    set_tasks(OPTIONS={"RESULT_TTL": 0})
    unique = calls.note.using(message_id="a")
    unique.enqueue()
    run_all()

    with pytest.raises(TaskResultDoesNotExist, match=r"'a' was already enqueued.*no longer kept"):
        unique.enqueue()


def test_message_id_without_a_dedup_window_is_refused(tasks_queue):
    with pytest.raises(InvalidTask, match=r"'default' has no dedup_window"):
        calls.note.using(message_id="a").enqueue()

    assert not Message.objects.exists()


# Where options are set


def test_task_options_apply_unless_using_overrides_them(tasks_queue, message_of, clock):
    message = message_of(calls.twice.enqueue())
    overridden = message_of(calls.twice.using(max_attempts=9).enqueue())

    assert (message.max_delivery_count, overridden.max_delivery_count) == (2, 9)
    assert message.expires_at == overridden.expires_at == clock.now + timedelta(hours=1)


def test_task_options_apply_to_a_plain_task(tasks_queue, message_of, monkeypatch):
    """A test may define a task before it changes TASKS."""
    plain = Task(
        func=calls.twice.func, priority=0, backend="default", queue_name="default", run_after=None,
        takes_context=False,
    )  # fmt: skip
    monkeypatch.setattr(calls, "twice", plain)

    assert message_of(plain.enqueue()).max_delivery_count == 2


def test_task_options_are_validated_and_stand_below_the_task():
    with pytest.raises(TypeError, match="below @task"):
        task_options(max_attempts=2)(calls.note)
    with pytest.raises(InvalidTask, match="max_attempts"):
        task_options(max_attempts=0)


def test_task_decorator_takes_options_except_on_django_6_0():
    if django.VERSION[:2] == (6, 0):
        with pytest.raises(TypeError, match="max_attempts"):
            task(max_attempts=3)(calls.meaning_of_life.func)
        return

    assert task(max_attempts=3)(calls.meaning_of_life.func).max_attempts == 3
    with pytest.raises(InvalidTask, match="max_attempts"):
        task(max_attempts=0)(calls.meaning_of_life.func)


# Many calls


def test_enqueue_many_stores_all_calls_in_one_statement(tasks_queue, run_all):
    with CaptureQueriesContext(connection) as queries:
        results = calls.note.enqueue_many([Draft(number, key="x") for number in range(500)])

    assert len([query for query in queries if "INSERT" in query["sql"]]) == 1
    assert len({result.id for result in results}) == 500
    assert run_all() == 500
    assert [args for args, _ in calls.seen] == [(number,) for number in range(500)]
    assert calls.note.get_result(results[7].id).args == [7]


def test_enqueue_many_sends_task_enqueued_for_each_call(tasks_queue, sent, commit):
    with commit():
        results = calls.note.enqueue_many([Draft(), Draft()])

    assert [id for *_, id in sent] == [result.id for result in results]


def test_enqueue_many_with_an_invalid_item_stores_nothing(tasks_queue):
    with pytest.raises(TypeError, match=r"args\[0\]"):
        calls.note.enqueue_many([Draft(1), Draft(object())])
    with pytest.raises(TypeError, match=r"takes objects of .*\.Draft, not 7"):
        calls.note.enqueue_many([Draft(1), 7])

    assert not Message.objects.exists()


def test_enqueue_many_in_a_queue_with_a_dedup_window(unique_queue, run_all):
    assert calls.note.enqueue_many([]) == []
    calls.note.enqueue_many([Draft(1), Draft(1)])
    calls.note.enqueue(1)
    assert run_all() == 3
    with pytest.raises(InvalidTask, match="cannot use a message_id"):
        calls.note.using(message_id="a").enqueue_many([Draft(1)])
