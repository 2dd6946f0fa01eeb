"""Handlers and tasks that start processes: theirs are not the worker, and behave as anywhere."""

import multiprocessing
import os
from functools import partial

import pytest
from django.test import override_settings

from django_mqlite import enqueue
from tests.support.forking_app import FORKING, QUEUES, tasks
from tests.support.waiting import wait_until
from tests.support.workers import WorkerRouter

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="NOT TESTED: there is no fork on this system"
)

EXPECTED = {
    "terminate": -15,
    "interrupt": 1,
    "fork": -15,
    "fork_and_return": 0,
    "fork_and_raise": 1,
    "fork_and_exit": 3,
    "run": 0,
    "map_in_pool": [1, 2],
    "map_in_executor": [1, 2],
    "name_start_method": multiprocessing.get_context().get_start_method(),
    "set_django_up": [True, True],
}

IN_COROUTINE = {
    "fork_and_yield": 1,
    "fork_and_sleep": 1,
    "fork_and_await_thread": 1,
    "fork_and_await_future": 1,
    "fork_and_await_after_exception": 1,
    "fork_and_raise_in_coroutine": 1,
    "fork_and_return_from_coroutine": 0,
    "fork_and_run_own_loop": 0,
    "fork_in_task_and_yield": 1,
    "fork_in_task_and_return": 0,
}

IN_POOL_THREAD = {way: code for way, code in EXPECTED.items() if way.startswith("fork")}
"""Python cannot end a multiprocessing child that a thread of a ThreadPoolExecutor forked."""

FLAVOURS = {
    "plain": partial(enqueue, "fork"),
    "atomic": partial(enqueue, "fork-atomic"),
    "async": partial(enqueue, "fork-async"),
    "thread of async": partial(enqueue, "fork-thread"),
    "asyncio's thread": partial(enqueue, "fork-to-thread"),
    "task": tasks.fork.enqueue,
    "async task": tasks.fork_in_a_loop.enqueue,
}


@pytest.fixture(autouse=True)
def into_the_workers_database(database):
    for queue in QUEUES:
        database.queue(queue)
    with override_settings(DATABASE_ROUTERS=[WorkerRouter()]):
        yield


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("start", ["--threads=3", "--processes=2"])
def test_processes_started_by_handlers_behave_as_anywhere(database, start, flavour):
    expected = {**EXPECTED, **IN_COROUTINE} if "async" in flavour else EXPECTED
    if "thread" in flavour:
        expected = IN_POOL_THREAD
    bystander = {"outcome": database.file("doubled"), "until": database.file("end")}
    enqueue("stand-by", bystander)
    for way in expected:
        FLAVOURS[flavour]({"way": way, "outcome": database.file(way)})

    worker = database.start(start, **FORKING)
    wait_until((database.beside / "doubled.ready").exists, "the other handler to run")
    outcomes = {way: database.beside / way for way in expected}
    wait_until(
        lambda: all(file.exists() for file in outcomes.values()), "the processes to end", seconds=60
    )

    found = {way: file.read_text() for way, file in outcomes.items()}
    assert found == {way: repr(outcome) for way, outcome in expected.items()}
    assert not (database.beside / "doubled").exists()
    (database.beside / "end").touch()
    wait_until(lambda: database.left() == 0, "the messages to be settled")
    worker.terminate()
    assert worker.exit_code() == 0, worker.output
    assert " is lost" not in worker.output
    assert database.dead_letters() == []
    assert database.is_sound()
