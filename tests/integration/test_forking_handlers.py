"""Processes that handlers and tasks start behave as they do outside of a worker."""

import multiprocessing
import os
from functools import partial

import pytest
from django.test import override_settings

from django_mqlite import enqueue
from tests.support.waiting import wait_until
from tests.support.worker_app import tasks
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
    "plain": (partial(enqueue, "fork-plain"), EXPECTED),
    "atomic": (partial(enqueue, "fork-atomic"), EXPECTED),
    "async": (partial(enqueue, "fork-async"), EXPECTED | IN_COROUTINE),
    "thread of async": (partial(enqueue, "fork-thread"), IN_POOL_THREAD),
    "asyncio's thread": (partial(enqueue, "fork-to-thread"), IN_POOL_THREAD),
    "task": (tasks.fork.enqueue, EXPECTED),
    "async task": (tasks.fork_in_a_loop.enqueue, EXPECTED | IN_COROUTINE),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("start", ["--threads=3", "--processes=2"])
def test_processes_started_by_handlers_behave_as_anywhere(database, start, flavour):
    enqueue_flavour, expected = FLAVOURS[flavour]
    outcomes = {way: database.beside / way for way in expected}
    database.enqueue("stand-by", {"outcome": database.file("copy"), "until": database.file("end")})
    with override_settings(DATABASE_ROUTERS=[WorkerRouter()]):
        for way in expected:
            enqueue_flavour({"way": way, "outcome": database.file(way)})

    worker = database.start(start)
    wait_until((database.beside / "copy.ready").exists, "the other handler to run")
    wait_until(
        lambda: all(file.exists() for file in outcomes.values()), "the processes to end", seconds=60
    )

    assert {way: file.read_text() for way, file in outcomes.items()} == {
        way: repr(outcome) for way, outcome in expected.items()
    }
    assert not (database.beside / "copy").exists(), "a child continued as a second worker"
    (database.beside / "end").touch()
    database.wait_empty()
    worker.terminate()
    assert worker.exit_code() == 0, worker.output
    assert " is lost" not in worker.output
    assert database.dead_letters() == []
    assert database.is_sound()
