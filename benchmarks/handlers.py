"""Handlers for the measured workers."""

import asyncio
import time
from pathlib import Path

from django.conf import settings

from django_mqlite import handler
from django_mqlite.models import Message, Queue
from django_mqlite.task_backend.compat import task


@handler("noop")
def do_nothing(message: Message) -> None:
    """Do nothing, to measure rates."""


@task()
def nothing() -> None:
    """Do nothing, as a task."""


@handler("stamp")
def stamp(message: Message) -> None:
    """Print the start time of the handler."""
    print(f"{message.pk} {time.time_ns()}", flush=True)


@handler("starts")
def start(message: Message) -> None:
    """Record each start; a first delivery sleeps for the seconds in its message."""
    with (Path(settings.DIRECTORY) / "starts").open("a") as starts:
        starts.write(f"{message.pk} {message.delivery_count} {time.time_ns()}\n")
    if message.delivery_count == 1 and message.body:
        time.sleep(message.data["seconds"])


@handler("reads")
def read(message: Message) -> None:
    Queue.objects.get(name=message.queue)


@handler("writes", atomic=True)
def write(message: Message) -> None:
    Queue.objects.filter(name=message.queue).update(updated_at=message.enqueued_at)


@handler("fails-once")
def fail_once(message: Message) -> None:
    if message.delivery_count == 1:
        raise RuntimeError("the first delivery fails")


@handler("coroutines")
async def read_in_a_loop(message: Message) -> None:
    await Queue.objects.aget(name=message.queue)


@handler("waits")
def wait_until_lost(message: Message) -> None:
    """Print a line, and the time at which the lease is lost."""
    print(message.pk, flush=True)
    while message.lease is not None and not message.lease.lost:
        time.sleep(0.001)
    print(time.time_ns(), flush=True)


@handler("waits-async")
async def wait_until_cancelled(message: Message) -> None:
    """Print a line, and the time at which the coroutine is cancelled."""
    print(message.pk, flush=True)
    try:
        await asyncio.sleep(3_600)
    finally:
        print(time.time_ns(), flush=True)
