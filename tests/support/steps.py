"""Deliveries of each flavour: plain, atomic and async handlers, tasks and async tasks."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any
from unittest import mock

from asgiref.sync import sync_to_async

from django_mqlite import enqueue, handler, handlers
from django_mqlite.handlers import Handler
from django_mqlite.models import Message
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

OWN_TIMEOUT = " with its timeout"
"""The end of the name of a flavour whose task has the timeout, and not its queue's handler."""

FLAVOURS = (*FUNCTIONS, *TASKS, *(name + OWN_TIMEOUT for name in TASKS))
ASYNC_FLAVOURS = ("async", "async task", "async task" + OWN_TIMEOUT)


def enqueue_flavour(flavour: str, *, timeout: float | None = None) -> None:
    """Enqueue a message of the flavour. For a task the timeout is that of its queue's handler."""
    if flavour.endswith(OWN_TIMEOUT):
        handler(QUEUE, timeout=3_600)(run_steps)
        TASKS[flavour.removesuffix(OWN_TIMEOUT)].using(timeout=timeout).enqueue()
        return
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


def run_handler(
    function: Callable[[Message], object],
    *,
    atomic: bool = False,
    timeout_ms: int | None = None,
    shutdown: Shutdown | None = None,
    **options: Any,
) -> ProcessResult:
    """Run a worker with this handler for its queues, by default "jobs" until nothing is due."""
    worker = WorkerOptions(
        **{"using": "default", "queues": ("jobs",), "burst": True, "threads": 1, **options}
    )
    facts: dict[str, Any] = {"function": function, "atomic": atomic, "timeout_ms": timeout_ms}
    by_queue = {queue: Handler(queue=queue, **facts) for queue in worker.queues}
    return run_worker_process(worker, by_queue, shutdown or Shutdown())


Act = Callable[[Message | None], object]
"""What a delivery does: in a thread, or in the loop if it is a coroutine. A task has no message."""

PARALLEL_FLAVOURS = ("plain", "async", "awaitable", "own loop", *TASKS)
"""Two atomic handlers never run at once."""

HANDLER_FLAVOURS = ("plain", "async", "awaitable", "own loop", "atomic")
EVERY_FLAVOUR = (*HANDLER_FLAVOURS, *TASKS)


class Work:
    """A handler or task of the flavour that serves the queue "jobs"."""

    def __init__(self, flavour: str, act: Act) -> None:
        self._flavour = flavour
        self._act = act

    def enqueue(self) -> int:
        """Enqueue a message; return its id."""
        if self._flavour in TASKS:
            TASKS[self._flavour].using(queue_name="jobs").enqueue()
        else:
            Message.objects.enqueue("jobs", None)
        return Message.objects.order_by("-pk").values_list("pk", flat=True)[0]

    def run(self, **options: Any) -> ProcessResult:
        """Run a worker until nothing is due."""
        function = function_of(self._flavour, self._act)
        with mock.patch(f"{__name__}.steps", partial(self._act, None)):
            return run_handler(function, atomic=self._flavour == "atomic", **options)


def function_of(flavour: str, act: Act) -> Callable[[Message], object]:
    """Return a handler function of the flavour that acts so."""

    async def act_in_a_loop(message: Message) -> None:
        await (act if iscoroutinefunction(act) else sync_to_async(act))(message)

    def return_an_awaitable(message: Message) -> Awaitable[None]:
        return act_in_a_loop(message)

    def run_a_loop(message: Message) -> None:
        asyncio.run(act_in_a_loop(message))

    functions = {
        "async": act_in_a_loop,
        "awaitable": return_an_awaitable,
        "own loop": run_a_loop,
    }
    return functions.get(flavour, act)
