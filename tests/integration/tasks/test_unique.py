"""Unique tasks: while a call is unfinished, the same call returns its result."""

import pytest
from django.db import transaction

from django_mqlite import Draft as MessageDraft
from django_mqlite import enqueue, enqueue_many
from django_mqlite.models import Message
from django_mqlite.task_backend import Draft, task_options
from django_mqlite.task_backend.compat import InvalidTask, TaskResultStatus
from django_mqlite.task_facts import NotATask

from . import calls

pytestmark = pytest.mark.django_db

TASKS = [calls.report, calls.report_async, calls.report_with_context]
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


@pytest.mark.rule("13.9")
@each_task
def test_unique_call_returns_the_unfinished_result(tasks_queue, task, run_all):
    first = task.enqueue(7)

    second = task.enqueue(7)

    assert (second.id, second) == (first.id, first)
    assert second.status == TaskResultStatus.READY
    assert task.enqueue(8).id != first.id
    assert run_all() == 2


@pytest.mark.rule("13.9")
@each_task
def test_unique_call_that_has_ended_runs_again(tasks_queue, task, finish, run_all):
    first = finish(task, 7)

    second = task.enqueue(7)

    assert first.status == TaskResultStatus.SUCCESSFUL
    assert second.id != first.id
    assert run_all() == 1


@pytest.mark.rule("13.9")
def test_running_call_is_returned_as_running(tasks_queue):
    first = calls.report.enqueue(7)
    Message.objects.claim("default")

    second = calls.report.enqueue(7)

    assert (second.id, second.status) == (first.id, TaskResultStatus.RUNNING)


@pytest.mark.rule("13.9")
@pytest.mark.parametrize(
    ("args", "kwargs", "is_same"),
    [
        ((7,), {}, True),
        ((), {"customer": 7}, True),
        ((8,), {}, False),
        (("7",), {}, False),
        ((7, "csv"), {}, False),
        ((7,), {"draft": True}, False),
    ],
)
def test_unique_true_compares_the_path_and_the_arguments(tasks_queue, args, kwargs, is_same):
    first = calls.report.enqueue(7)

    second = calls.report.enqueue(*args, **kwargs)

    assert (second.id == first.id) is is_same


@pytest.mark.rule("13.9")
def test_unique_true_ignores_the_order_of_keys(tasks_queue):
    first = calls.report.enqueue({"a": 1, "b": 2})

    assert calls.report.enqueue({"b": 2, "a": 1}).id == first.id


@pytest.mark.rule("13.9")
@pytest.mark.parametrize(
    ("unique", "key"),
    [
        ("report-{0}", "report-7"),
        ("report-{customer}", "report-7"),
        ("{kind}-{draft}", "pdf-False"),
        ("nightly", "nightly"),
    ],
)
def test_format_string_names_the_unique_key(tasks_queue, unique, key):
    calls.report.using(unique=unique).enqueue(customer=7)

    assert Message.objects.get().unique_key == key


@pytest.mark.rule("13.9")
def test_equal_format_strings_are_one_key_for_tasks_and_messages(tasks_queue):
    first = calls.report.using(unique="report-{0}").enqueue(7)

    assert calls.report_async.enqueue(7).id == first.id
    assert enqueue("default", None, unique_key="report-7").message_id == first.id


@pytest.mark.rule("13.9")
def test_unique_call_refuses_a_holder_that_is_not_a_task(tasks_queue):
    enqueue("default", None, unique_key="report-7")

    with transaction.atomic(), pytest.raises(NotATask, match="is not a task"):
        calls.report_async.enqueue(7)

    assert Message.objects.count() == 1


@pytest.mark.rule("13.9")
def test_using_turns_unique_off_and_on(tasks_queue):
    calls.report.enqueue(7)

    calls.report.using(unique=False).enqueue(7)
    first = calls.note.using(unique=True).enqueue(1)

    assert Message.objects.count() == 3
    assert calls.note.using(unique=True).enqueue(1).id == first.id


@pytest.mark.rule("13.9")
def test_retried_call_stays_unique_until_the_last_failure(tasks_queue, run_once, clock):
    task = calls.fail.using(unique=True, max_attempts=2, backoff=10)
    first = task.enqueue()
    run_once()

    assert task.enqueue().id == first.id
    clock.advance(10)
    run_once()
    assert task.get_result(first.id).status == TaskResultStatus.FAILED
    assert task.enqueue().id != first.id


@pytest.mark.rule("13.9")
@each_task
def test_enqueue_many_returns_one_result_for_equal_calls(tasks_queue, task, run_all):
    first = task.enqueue(1)

    results = task.enqueue_many([Draft(1), Draft(2), Draft(2), Draft(3)])

    assert results[0].id == first.id
    assert results[1].id == results[2].id
    assert len({result.id for result in results}) == 3
    assert run_all() == 3


@pytest.mark.rule("13.9")
def test_repeated_unique_call_sends_no_task_enqueued(tasks_queue, sent, commit):
    with commit():
        calls.report.enqueue(7)
        calls.report.enqueue(7)
        calls.report.enqueue_many([Draft(7), Draft(8), Draft(8)])

    assert [name for name, *_ in sent] == ["task_enqueued"] * 2


@pytest.mark.rule("13.9")
def test_rolled_back_call_is_not_unique(tasks_queue):
    with transaction.atomic():
        first = calls.report.enqueue(7)
        transaction.set_rollback(True)

    assert calls.report.enqueue(7).id != first.id


@pytest.mark.rule("13.9")
def test_unique_and_message_id_are_checked_together(unique_queue, run_all):
    task = calls.report.using(message_id="m")
    first = task.enqueue(7)
    run_all()

    assert task.enqueue(7).id == first.id == "m"
    second = calls.report.enqueue(7)
    assert calls.report.using(message_id="n").enqueue(7).id == second.id
    assert Message.objects.filter(message_id="n").count() == 0


@pytest.mark.parametrize("unique", ["", 7, ["a"], b"a"], ids=str)
def test_invalid_unique_is_refused(unique):
    with pytest.raises(InvalidTask, match="unique must be True, False or a format string"):
        task_options(unique=unique)


@pytest.mark.parametrize(
    ("task", "unique", "error"),
    [
        (calls.report, "{nobody}", r"\{nobody\}, which is not an argument of report\(customer"),
        (calls.report, "{customer}-{nobody[a]}", r"\{nobody\}"),
        (calls.report, "{2}", r"\{2\}"),
        (calls.report, "{}{}{}", r"\{2\}"),
        (calls.report_with_context, "{context}", r"\{context\}"),
        (calls.report_with_context, "{2}", r"\{2\}"),
        (calls.report, "{", "'{' is not a format string: "),
    ],
)
def test_format_string_that_fits_no_call_is_refused_when_it_is_set(task, unique, error):
    with pytest.raises(InvalidTask, match=error):
        task.using(unique=unique)


@pytest.mark.parametrize("unique", ["{9}", "{anything.real}", "{}{}"])
def test_format_string_may_name_any_argument_of_a_function_that_takes_all(unique):
    assert calls.note.using(unique=unique).unique == unique


@pytest.mark.parametrize("unique", ["{0.real.x}", "{0:%}", "{0[a]}"])
def test_format_string_that_does_not_fit_the_call_stores_nothing(tasks_queue, unique):
    with pytest.raises(InvalidTask, match="does not fit this call of report"):
        calls.report.using(unique=unique).enqueue("a")

    assert not Message.objects.exists()


def test_unique_key_that_is_too_long_stores_nothing(tasks_queue):
    with pytest.raises(ValueError, match="unique_key must have 1 to 1024 characters"):
        calls.report_async.enqueue("x" * 1_025)

    assert not Message.objects.exists()


def test_unique_tasks_and_messages_share_a_batch(tasks_queue):
    """Another program of the project may enqueue a task's messages by hand."""
    first = calls.report_async.enqueue(7)
    drafts = [MessageDraft(n, unique_key=f"report-{n}") for n in (6, 7)]

    messages = enqueue_many("default", drafts)

    assert [message.duplicate for message in messages] == [False, True]
    assert messages[1].message_id == first.id


def test_reject_frees_the_unique_key(tasks_queue, finish):
    task = calls.reject.using(unique=True)
    first = finish(task)

    assert first.status == TaskResultStatus.FAILED
    assert task.enqueue().id != first.id
