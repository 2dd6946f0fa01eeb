"""Tasks in real `runworker` processes, including killed ones."""

import signal

import pytest
from django.test import override_settings

from django_mqlite.task_backend.compat import TaskResultStatus
from tests.support.waiting import wait_until
from tests.support.worker_app.tasks import double, double_async
from tests.support.workers import WorkerRouter


@pytest.fixture(autouse=True)
def workers_database(database):
    with override_settings(DATABASE_ROUTERS=[WorkerRouter()]):
        yield


def is_finished(result):
    result.refresh()
    return result.is_finished


def test_worker_serves_the_queue_that_migrate_created(database):
    results = [double.enqueue(21), double_async.enqueue(4)]

    worker = database.start("--burst")

    assert worker.ended_well()
    for result in results:
        result.refresh()
    assert [result.status for result in results] == [TaskResultStatus.SUCCESSFUL] * 2
    assert [result.return_value for result in results] == [42, 8]
    assert f":{worker.pid}:" in results[0].worker_ids[0]


def test_worker_serves_a_queue_of_tasks_by_name(database):
    result = double.enqueue(21)

    assert database.start("--queues=default", "--processes=2", "--burst").ended_well()

    result.refresh()
    assert result.return_value == 42


def test_task_of_a_killed_worker_runs_again(database):
    result = double.enqueue(21, started=database.file("started"), wait=database.file("go-on"))
    worker = database.start()
    wait_until(database.beside.joinpath("started.1").exists, "the task to start")
    result.refresh()
    assert result.status == TaskResultStatus.RUNNING

    worker.kill()
    database.expire_leases()
    database.beside.joinpath("go-on").touch()
    assert database.start("--max-messages=1").ended_well()

    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 42)
    assert result.attempts == 2
    assert f":{worker.pid}:" in result.worker_ids[0]
    assert result.errors[0].exception_class.__name__ in ("LeaseExpired", "WorkerDied")


def test_task_that_kills_every_worker_fails_with_the_reason(database):
    database.queue("default", lock_duration=0.5)
    result = double.using(max_attempts=2).enqueue(21, kill_attempts=9)

    for _ in range(2):
        assert database.start("--max-messages=1").exit_code() == -signal.SIGKILL
    last = database.start()
    wait_until(lambda: is_finished(result), "the task to end")

    assert result.status == TaskResultStatus.FAILED
    assert result.attempts == 2
    assert len(result.errors) == 2
    for error in result.errors:
        assert error.exception_class.__name__ in ("LeaseExpired", "WorkerDied")
        assert error.traceback
    last.terminate()
    assert last.ended_well()


@pytest.mark.rule("14.3")
def test_process_of_a_task_beyond_its_timeout_is_killed(database):
    task = double.using(timeout=0.5, max_attempts=1)
    result = task.enqueue(21, started=database.file("started"), wait=database.file("never"))
    worker = database.start("--processes=2")
    wait_until(database.beside.joinpath("started.1").exists, "the task to start")

    wait_until(lambda: is_finished(result), "the end of the task")

    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class.__name__ for error in result.errors] == ["WorkerDied"]
    assert "exceeded its timeout" in worker.output
    worker.terminate()
    assert worker.ended_well()


@pytest.mark.rule("14.4")
def test_worker_of_a_task_beyond_its_timeout_ends(database):
    task = double.using(timeout=0.5, max_attempts=1)
    result = task.enqueue(21, started=database.file("started"), wait=database.file("never"))

    worker = database.start("--shutdown-timeout=0.5")

    assert worker.exit_code() == 1
    assert "ran longer than its timeout, 0.5 s; a thread cannot be cancelled" in worker.output
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
