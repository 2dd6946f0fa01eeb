"""enqueue_tasks(): calls of different tasks, all or none."""

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_mqlite import DuplicateConflict, QueueNotFound
from django_mqlite.models import Message
from django_mqlite.task_backend import Call, aenqueue_tasks, enqueue_tasks
from django_mqlite.task_backend.compat import BaseTaskBackend, InvalidTask

from . import calls

pytestmark = pytest.mark.django_db


@pytest.fixture
def mails(make_queue):
    return make_queue("mails")


def test_calls_of_different_tasks_are_stored_in_one_statement_per_queue(
    tasks_queue, mails, run_all, message_of
):
    with CaptureQueriesContext(connection) as queries:
        results = enqueue_tasks(
            [
                Call(calls.note, 1, key="x"),
                Call(calls.echo.using(queue_name="mails", priority=7), "a"),
                Call(calls.note.using(max_attempts=2), 2),
                Call(calls.note_async),
            ]
        )

    assert len([query for query in queries if "INSERT" in query["sql"]]) == 2
    assert [result.task.name for result in results] == ["note", "echo", "note", "note_async"]
    rows = [message_of(result) for result in results]
    assert [(row.queue, row.priority, row.max_delivery_count) for row in rows] == [
        ("default", 0, 0),
        ("mails", 7, 0),
        ("default", 0, 2),
        ("default", 0, 0),
    ]
    assert run_all() == 3
    assert calls.seen == [((1,), {"key": "x"}), ((2,), {}), ((), {})]


def test_calls_join_the_transaction_of_the_caller(tasks_queue, mails, sent, commit):
    listed = [Call(calls.note), Call(calls.note.using(queue_name="mails"))]
    with commit():
        with transaction.atomic():
            enqueue_tasks(listed)
            transaction.set_rollback(True)
        assert not Message.objects.exists()
        results = enqueue_tasks(listed)

    assert [(name, id) for name, _, _, id in sent] == [
        ("task_enqueued", result.id) for result in results
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: Call(calls.echo, object()), TypeError),
        (lambda: Call(calls.echo), TypeError),
        (lambda: Call(calls.note.using(queue_name="nowhere")), QueueNotFound),
        (lambda: Call(calls.note.using(message_id="a")), InvalidTask),
        (lambda: Call(calls.other_name), InvalidTask),
        (lambda: calls.note, TypeError),
        (lambda: Call(calls.not_a_task), TypeError),
    ],
    ids=["argument", "missing argument", "queue", "message id", "unknown", "no call", "no task"],
)
def test_invalid_call_stores_none_of_the_others(tasks_queue, call, error):
    with transaction.atomic(), pytest.raises(error):
        enqueue_tasks([Call(calls.note), call()])

    assert not Message.objects.exists()


def test_calls_are_unique_and_deduplicated_as_single_ones(unique_queue):
    unique = calls.report.enqueue(7)
    once = calls.note.using(message_id="once")

    results = enqueue_tasks([Call(calls.report, 7), Call(once, 1), Call(once, 1), Call(calls.note)])

    assert [result.id for result in results[:3]] == [unique.id, "once", "once"]
    assert Message.objects.count() == 3
    with pytest.raises(DuplicateConflict, match="'once' with different data"):
        enqueue_tasks([Call(calls.note), Call(once, 2)])
    assert Message.objects.count() == 3


def test_no_calls_have_no_results(tasks_queue):
    assert enqueue_tasks([]) == []
    with pytest.raises(TypeError, match="takes a list of Call objects, not None"):
        enqueue_tasks(None)


def test_coroutine_enqueues_calls(tasks_queue):
    first, second = async_to_sync(aenqueue_tasks)(Call(calls.note, number) for number in (1, 2))

    assert [first.args, second.args] == [[1], [2]]


def test_calls_with_another_backend_are_enqueued_by_it(tasks_queue, set_tasks):
    package = BaseTaskBackend.__module__.rpartition(".")[0]
    set_tasks(others={"now": {"BACKEND": f"{package}.immediate.ImmediateBackend"}})

    enqueue_tasks([Call(calls.note.using(backend="now"), 1), Call(calls.note, 2)])

    assert calls.seen == [((1,), {})]
    assert Message.objects.count() == 1
