"""What a task can say: the framework's options, those of messages, and where they are written."""

from datetime import UTC, datetime, timedelta

import django
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import DuplicateConflict, enqueue
from django_mqlite.models import Message, Queue
from django_mqlite.task_backend import Draft, MqliteTask, task_options
from django_mqlite.task_backend.compat import (
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task,
)
from django_mqlite.types import Abandonment
from django_mqlite.verbs import sweeps
from django_mqlite.worker.executor import Executor
from tests.support.verbs import overwrite

from . import calls

pytestmark = pytest.mark.django_db

LATER = datetime(2026, 1, 2, tzinfo=UTC)


# The framework's own


def test_a_higher_priority_goes_first(tasks_queue, run_all):
    for priority in (0, -100, 100):
        calls.note.using(priority=priority).enqueue(priority)
    run_all()

    assert [args for args, _ in calls.seen] == [(100,), (0,), (-100,)]


@pytest.mark.parametrize("priority", [-101, 101, 3.1])
def test_a_priority_out_of_bounds_is_invalid(priority):
    with pytest.raises(InvalidTask, match="whole number between -100 and 100"):
        calls.note.using(priority=priority)


def test_a_task_is_enqueued_to_the_queue_it_names(tasks_queue, make_queue):
    make_queue("mails")
    result = calls.note.using(queue_name="mails").enqueue()

    assert Message.objects.get().queue == "mails"
    assert calls.note.get_result(result.id).task.queue_name == "mails"


def test_a_queue_that_the_backend_does_not_have_is_invalid(settings):
    elsewhere = calls.note.using(queue_name="elsewhere")
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default"]}}

    with pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid for backend"):
        calls.note.using(queue_name="elsewhere")
    with pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid for backend"):
        elsewhere.enqueue()


def test_a_task_with_a_time_does_not_run_before_it(tasks_queue, run_all, clock):
    result = calls.note.using(run_after=LATER).enqueue()

    assert run_all() == 0
    result.refresh()
    assert result.status == TaskResultStatus.READY
    clock.advance(86_400)
    assert run_all() == 1


def test_the_result_remembers_the_task_as_it_was_enqueued(tasks_queue, run_once):
    wanted = calls.fail.using(
        priority=7,
        run_after=datetime(2025, 1, 1, tzinfo=UTC),
        max_attempts=9,
        backoff=0.5,
        ttl=timedelta(days=1),
    )
    result = wanted.enqueue()
    run_once()  # it rests now, until a time of its own

    assert result.task == wanted
    assert calls.fail.get_result(result.id).task == wanted


def test_a_naive_time_is_invalid():
    with pytest.raises(InvalidTask, match="aware"):
        calls.note.using(run_after=datetime(2026, 1, 2))  # noqa: DTZ001 - that is what is refused


def test_without_time_zones_a_naive_time_is_the_projects(tasks_queue, settings):
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Berlin"
    calls.note.using(run_after=datetime(2026, 1, 2)).enqueue()  # noqa: DTZ001 - see the name

    assert Message.objects.get().visible_at == datetime(2026, 1, 1, 23, tzinfo=UTC)


def test_only_a_function_of_a_module_can_be_a_task():
    def local():
        """In a function."""

    for function in (any, local, lambda: None):
        with pytest.raises(InvalidTask, match="defined at a module level"):
            task()(function)


def test_a_context_must_have_its_argument():
    with pytest.raises(InvalidTask, match="takes context"):
        task(takes_context=True)(calls.meaning_of_life.func)


def test_a_task_that_a_worker_would_not_find_is_refused_at_enqueue(tasks_queue, monkeypatch):
    with pytest.raises(InvalidTask, match=r"no task '.*\._hidden'.*name of its function"):
        calls.other_name.enqueue()

    monkeypatch.setattr(calls.note.func, "__module__", "__main__")
    with pytest.raises(InvalidTask, match="__main__"):
        calls.note.enqueue()

    assert not Message.objects.exists()


def test_a_task_that_another_one_hides_is_refused_at_enqueue(tasks_queue, monkeypatch):
    first = calls.note
    monkeypatch.setattr(calls, "note", calls.bare)

    with pytest.raises(InvalidTask, match="is another task"):
        first.enqueue()


# Those of messages


def test_max_attempts_bounds_the_attempts(tasks_queue, run_all):
    calls.fail.using(max_attempts=2).enqueue()

    assert run_all() == 2


@pytest.mark.parametrize("delivery", [1, 2, 3])
def test_backoff_is_the_tasks_own_and_doubles(tasks_queue, clock, run_once, message_of, delivery):
    result = calls.fail.using(backoff=100).enqueue()
    for _ in range(delivery):
        run_once()
        message = message_of(result)
        rest = (message.visible_at - clock.now).total_seconds()
        clock.advance(rest)

    assert 50 * 2 ** (delivery - 1) <= rest <= 100 * 2 ** (delivery - 1)


def test_backoff_ends_at_an_hour_or_at_itself(tasks_queue, clock, run_once, message_of):
    for backoff, most in ((3_000, 3_600), (7_200, 7_200)):
        result = calls.fail.using(backoff=backoff).enqueue()
        overwrite(Message.objects.filter(message_id=result.id), delivery_count=7)
        run_once()

        rest = (message_of(result).visible_at - clock.now).total_seconds()
        assert most / 2 <= rest <= most


def test_without_a_backoff_the_queues_is_asked(tasks_queue):
    calls.fail.enqueue()
    (message,) = Message.objects.claim("default")
    handlers = Executor(handlers={}, using="default")
    assert handlers.is_async(message) is False

    from django_mqlite.task_backend.runner import run  # noqa: PLC0415 - beside what it is compared to

    assert run(message).outcome == Abandonment()


def test_a_group_is_worked_off_one_by_one_in_order(tasks_queue, run_once):
    grouped = calls.fail.using(group_id="customer-7")
    grouped.enqueue()
    second = calls.note.using(group_id="customer-7").enqueue()
    run_once()

    second.refresh()

    assert calls.seen == ["fail"]  # the first rests, and the second waits for it
    assert second.task.group_id == "customer-7"


def test_a_group_and_a_priority_contradict_each_other():
    with pytest.raises(InvalidTask, match="group_id cannot have a priority"):
        calls.note.using(group_id="g", priority=1)


def test_a_task_whose_time_to_live_is_over_fails_without_an_attempt(tasks_queue, run_all, clock):
    result = calls.note.using(ttl=60).enqueue()
    clock.advance(60)
    sweeps.expire("default", limit=10)

    assert run_all() == 0
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 0)
    (error,) = result.errors
    assert error.exception_class.__name__ == "DeadLettered"
    assert error.traceback.startswith("TTLExpired: ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"max_attempts": True},
        {"backoff": -1},
        {"backoff": "soon"},
        {"ttl": 0},
        {"group_id": ""},
        {"message_id": 7},
        {"message_id": "x" * 1_025},
    ],
    ids=lambda wrong: str(wrong)[:30],
)
def test_a_wrong_option_is_invalid_and_named(wrong):
    (name,) = wrong
    with pytest.raises(InvalidTask, match=name):
        calls.note.using(**wrong)


def test_an_option_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match=r"no option 'max_attempt'.*max_attempts"):
        calls.note.using(max_attempt=3)


# Unique tasks


def test_a_repeat_within_the_window_gives_back_the_first_result(unique_queue, run_all, clock):
    unique = calls.meaning_of_life.using(message_id="report-2026-01-01")
    first = unique.enqueue()
    again = unique.enqueue()

    assert (again.id, again) == ("report-2026-01-01", first)
    assert run_all() == 1
    done = unique.enqueue()
    assert (done.status, done.return_value) == (TaskResultStatus.SUCCESSFUL, 42)

    clock.advance(600)
    assert unique.enqueue().status == TaskResultStatus.READY


def test_a_repeat_is_not_told_as_enqueued(unique_queue, heard, committed):
    for _ in range(2):
        with committed():
            calls.note.using(message_id="a").enqueue()

    assert [name for name, *_ in heard] == ["task_enqueued"]


def test_the_same_id_for_another_call_is_a_conflict(unique_queue):
    calls.note.using(message_id="a").enqueue(1)

    with pytest.raises(DuplicateConflict):
        calls.note.using(message_id="a").enqueue(2)


def test_the_same_id_for_another_task_is_a_conflict(unique_queue, run_all):
    first = calls.note.using(message_id="a").enqueue()

    with pytest.raises(DuplicateConflict, match="'a' with other data"):
        calls.meaning_of_life.using(message_id="a").enqueue()

    assert calls.note.using(message_id="a").enqueue().id == first.id
    assert run_all() == 1


def test_the_same_id_for_a_message_is_a_conflict(unique_queue):
    calls.note.using(message_id="a").enqueue()

    with pytest.raises(DuplicateConflict):
        enqueue("default", {"args": [], "kwargs": {}}, message_id="a")


def test_a_repeat_may_ask_for_another_time(unique_queue):
    first = calls.note.using(message_id="a").enqueue(1)

    again = calls.note.using(message_id="a", run_after=LATER).enqueue(1)

    assert again == first


def test_a_repeat_of_what_is_kept_no_more_says_so(unique_queue, run_all, clock, settings):
    options = {"QUEUES": [], "OPTIONS": {"RESULT_TTL": 0}}
    settings.TASKS = {"default": {**settings.TASKS["default"], **options}}
    unique = calls.note.using(message_id="a")
    unique.enqueue()
    run_all()

    with pytest.raises(TaskResultDoesNotExist, match=r"'a' was enqueued.*no longer kept"):
        unique.enqueue()


def test_an_id_without_a_window_is_refused(tasks_queue):
    with pytest.raises(InvalidTask, match=r"'default' has no dedup_window"):
        calls.note.using(message_id="a").enqueue()

    assert not Message.objects.exists()


def test_a_window_does_not_take_two_calls_alike_for_one(unique_queue, run_all):
    calls.note.enqueue(1)
    calls.note.enqueue(1)

    assert run_all() == 2


# Where they are written


def test_a_task_of_this_backend_is_one_of_ours():
    assert isinstance(calls.note, MqliteTask)


def test_the_options_of_the_function_are_the_tasks(tasks_queue, message_of, clock):
    message = message_of(calls.twice.enqueue())

    assert message.max_delivery_count == 2
    assert message.expires_at == clock.now + timedelta(hours=1)


def test_using_wins_over_the_function(tasks_queue, message_of):
    assert message_of(calls.twice.using(max_attempts=9).enqueue()).max_delivery_count == 9


def test_a_task_of_another_backend_keeps_them(tasks_queue, message_of, monkeypatch):
    """As one is that was made before the settings changed, in a test say."""
    plain = Task(
        func=calls.twice.func,
        priority=0,
        backend="default",
        queue_name="default",
        run_after=None,
        takes_context=False,
    )
    monkeypatch.setattr(calls, "twice", plain)

    assert message_of(plain.enqueue()).max_delivery_count == 2


def test_options_are_written_below_the_task():
    with pytest.raises(TypeError, match="below @task"):
        task_options(max_attempts=2)(calls.note)


def test_options_of_a_function_are_checked():
    with pytest.raises(InvalidTask, match="max_attempts"):
        task_options(max_attempts=0)


def define(**options):
    return task(**options)(calls.meaning_of_life.func)


def test_the_decorator_takes_them_where_the_framework_lets_it():
    if django.VERSION[:2] == (6, 0):
        with pytest.raises(TypeError, match="max_attempts"):
            define(max_attempts=3)
        return

    assert define(max_attempts=3).max_attempts == 3
    with pytest.raises(InvalidTask, match="max_attempts"):
        define(max_attempts=0)


# Many at once


def test_many_calls_are_enqueued_in_one_statement(tasks_queue, run_all):
    with CaptureQueriesContext(connection) as queries:
        results = calls.note.enqueue_many([Draft(number, key="x") for number in range(500)])

    assert len([query for query in queries if "INSERT" in query["sql"]]) == 1
    assert len({result.id for result in results}) == 500
    assert run_all() == 500
    assert [args for args, _ in calls.seen] == [(number,) for number in range(500)]
    assert calls.note.get_result(results[7].id).args == [7]


def test_many_calls_are_told_when_they_are_committed(tasks_queue, heard, committed):
    with committed():
        results = calls.note.enqueue_many([Draft(), Draft()])

    assert [id for *_, id in heard] == [result.id for result in results]


def test_one_bad_call_of_many_leaves_nothing_behind(tasks_queue):
    with pytest.raises(TypeError, match=r"args\[0\]"):
        calls.note.enqueue_many([Draft(1), Draft(object())])
    with pytest.raises(TypeError, match=r"takes objects of .*\.Draft, not 7"):
        calls.note.enqueue_many([Draft(1), 7])

    assert not Message.objects.exists()


def test_no_calls_are_no_trouble(tasks_queue):
    assert calls.note.enqueue_many([]) == []


def test_many_calls_in_a_queue_with_a_window(unique_queue):
    assert len(calls.note.enqueue_many([Draft(1), Draft(1)])) == 2
    assert Queue.objects.get().dedup_window_ms
    with pytest.raises(InvalidTask, match="cannot use a message_id"):
        calls.note.using(message_id="a").enqueue_many([Draft(1)])
