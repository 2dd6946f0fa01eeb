"""A task from its enqueueing to its result, as the framework's own backends have it."""

import pytest

from django_mqlite.task_backend.compat import TaskResultStatus

from . import calls

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_task_that_is_enqueued_is_ready(tasks_queue, clock):
    result = calls.note.enqueue(1, two=3)

    assert result.status == TaskResultStatus.READY
    assert (result.args, result.kwargs) == ([1], {"two": 3})
    assert (result.enqueued_at, result.started_at, result.finished_at) == (clock.now, None, None)
    assert result.task == calls.note
    assert (result.attempts, result.worker_ids, result.errors) == (0, [], [])
    assert not result.is_finished
    with pytest.raises(ValueError, match="Task has not finished yet"):
        assert result.return_value


def test_a_task_that_has_run_is_successful_with_its_return_value(run_one, clock):
    start = clock.now
    result = calls.meaning_of_life.enqueue()
    run_one(worker="a worker")

    result.refresh()

    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == 42
    assert (result.started_at, result.finished_at) == (start, clock.now)
    assert result.worker_ids == ["a worker"]
