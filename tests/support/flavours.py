"""Every kind of handler and task that a worker runs, around one function of the test's."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async

from django_mqlite.handlers import Handler
from django_mqlite.models import Message
from django_mqlite.task_backend.compat import task
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import ProcessResult, run_worker_process
from django_mqlite.worker.shutdown import Shutdown

Act = Callable[[Message | None], object]
"""What a delivery does, in a thread. A task has no message."""

HANDLERS = ("plain", "async", "awaitable", "own loop")
TASKS = ("task", "async task")
FLAVOURS = (*HANDLERS, "atomic", *TASKS)


class Work:
    """A queue called "jobs" with a handler or task of that flavour."""

    def __init__(self, flavour: str, act: Act) -> None:
        self._flavour = flavour
        self._act = act

    def enqueue(self) -> int:
        """The number of the new message."""
        if self._flavour in TASKS:
            kind = call_async if self._flavour == "async task" else call
            kind.using(queue_name="jobs").enqueue()
        else:
            Message.objects.enqueue("jobs", None)
        return Message.objects.order_by("-pk").values_list("pk", flat=True)[0]

    def run(self, **options: Any) -> ProcessResult:
        """Work until idle, in one process and in one thread by default."""
        worker = WorkerOptions(
            **{"using": "default", "queues": ("jobs",), "burst": True, "threads": 1, **options}
        )
        handler = Handler(
            queue="jobs",
            function=_function(self._flavour, self._act),
            atomic=self._flavour == "atomic",
        )
        with _called(self._act):
            return run_worker_process(worker, {"jobs": handler}, Shutdown())


def _function(flavour: str, act: Act) -> Callable[[Message], object]:
    async def act_in_a_loop(message: Message) -> None:
        await sync_to_async(act)(message)

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


_acts: list[Act] = []


@contextmanager
def _called(act: Act) -> Iterator[None]:
    _acts.append(act)
    try:
        yield
    finally:
        _acts.pop()


@task()
def call() -> None:
    _acts[-1](None)


@task()
async def call_async() -> None:
    await sync_to_async(_acts[-1])(None)
