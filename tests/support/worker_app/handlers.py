"""Handlers steered by their messages: each key of the body is a step, in the order below."""

import asyncio
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

from django_mqlite import Reject, Retry, handler
from django_mqlite.models import Message

from .models import Effect
from .waiting import wait_for


@handler("jobs")
@handler("more-jobs")
@handler("groups")
@handler("strict")
def work(message: Message) -> None:
    steps = prepare(message)
    if "quiet" not in steps:
        Effect.objects.create(**facts(message))
    finish(steps, message)


@handler("atomic", atomic=True)
def work_atomically(message: Message) -> None:
    """The effect comes first, so that a handler that does not end has one to lose."""
    Effect.objects.create(**facts(message))
    finish(prepare(message), message)


@handler("async")
async def work_in_a_loop(message: Message) -> None:
    await asyncio.sleep(0)
    await Effect.objects.acreate(**facts(message))
    finish(message.data, message)


@handler("noop")
def do_nothing(message: Message) -> None:
    """For the rates."""


def prepare(message: Message) -> dict[str, Any]:
    """Say that the handler runs, and wait for what it is to wait for."""
    steps: dict[str, Any] = message.data
    if "started" in steps:
        Path(f"{steps['started']}.{message.delivery_count}").write_text(str(os.getpid()))
    if "hog" in steps and message.delivery_count == 1:
        ctypes.PyDLL(None).usleep(int(steps["hog"] * 1_000_000))  # keeps the interpreter's lock
    if "wait_for" in steps:
        wait_for(Path(steps["wait_for"]))
    return steps


def facts(message: Message) -> dict[str, Any]:
    return {
        "message": message.pk,
        "queue": message.queue,
        "delivery_count": message.delivery_count,
        "worker": message.locked_by,
    }


def finish(steps: dict[str, Any], message: Message) -> None:
    """End as the message says; by default return."""
    if message.delivery_count > steps.get("deliveries", sys.maxsize):
        return  # the trouble is over
    if "raise" in steps:
        raise RuntimeError(steps["raise"])
    if "reject" in steps:
        raise Reject(*steps["reject"])
    if "retry" in steps:
        raise Retry("not yet", delay=steps["retry"])
    if "exit" in steps:
        raise SystemExit(steps["exit"])
    if "kill" in steps:
        os.kill(os.getpid(), signal.SIGKILL)
