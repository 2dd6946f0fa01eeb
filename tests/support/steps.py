"""A delivery of each flavour: a plain, an atomic and an async handler, a task, an async task."""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async

from django_mqlite import enqueue, handler, handlers
from django_mqlite.task_backend.compat import task
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import ProcessResult, run_worker_process
from django_mqlite.worker.shutdown import Shutdown

QUEUE = "default"

steps: Any = None
"""What the handler or the task does; tests set it."""


def run_steps(message: Any = None) -> None:
    steps()


async def run_steps_async(message: Any = None) -> None:
    await (steps if iscoroutinefunction(steps) else sync_to_async(steps))()


@task()
def plain_task() -> None:
    run_steps()


@task()
async def async_task() -> None:
    await run_steps_async()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "plain": run_steps,
    "atomic": run_steps,
    "async": run_steps_async,
}
TASKS: dict[str, Any] = {"task": plain_task, "async task": async_task}

FLAVOURS = (*FUNCTIONS, *TASKS)
ASYNC_FLAVOURS = ("async", "async task")


def enqueue_flavour(flavour: str, *, timeout: float | None = None) -> None:
    """Enqueue a message of the flavour. For a task the timeout is that of its queue's handler."""
    if flavour in TASKS:
        if timeout is not None:
            handler(QUEUE, timeout=timeout)(run_steps)
        TASKS[flavour].enqueue()
        return
    handler(QUEUE, atomic=flavour == "atomic", timeout=timeout)(FUNCTIONS[flavour])
    enqueue(QUEUE, None)


def run_worker() -> ProcessResult:
    """Run a worker until nothing is due."""
    options = WorkerOptions(using="default", queues=(QUEUE,), burst=True, threads=1)
    return run_worker_process(options, handlers.get_handlers(), Shutdown())


def work() -> None:
    """Run a worker until nothing is due, without a failure of its own."""
    assert run_worker().code == 0
