"""Handlers steered by their messages: each key of the body is a step, in the order below."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async

from django_mqlite import Reject, Retry, handler
from django_mqlite.models import Message

from . import unruly  # noqa: F401 - registers its handlers
from .models import Effect, effect_of
from .waiting import wait_for, wait_for_condition, wait_until_cancelled
from .ways import stand_by, start, start_in_coroutine


@handler("jobs")
@handler("more-jobs")
@handler("groups")
@handler("strict")
def work(message: Message) -> None:
    steps = prepare(message)
    if "quiet" not in steps:
        Effect.objects.create(**effect_of(message))
    finish(steps, message)


@handler("atomic", atomic=True)
def work_atomically(message: Message) -> None:
    """Store the effect first, so that a handler that does not end has one to lose."""
    Effect.objects.create(**effect_of(message))
    finish(prepare(message), message)


@handler("async")
async def work_in_a_loop(message: Message) -> None:
    if "ended" in message.data:
        await wait_until_cancelled(message.data)
    await asyncio.sleep(0)
    await Effect.objects.acreate(**effect_of(message))
    finish(message.data, message)


@handler("noop")
def do_nothing(message: Message) -> None:
    """Return at once."""


@handler("fork-plain")
@handler("fork-atomic", atomic=True)
def fork(message: Message) -> None:
    start(message.data)


@handler("fork-async")
async def fork_in_a_loop(message: Message) -> None:
    await start_in_coroutine(message.data)


@handler("fork-thread")
async def fork_in_a_thread(message: Message) -> None:
    await sync_to_async(start)(message.data)


@handler("fork-to-thread")
async def fork_in_a_thread_of_asyncio(message: Message) -> None:
    await asyncio.to_thread(start, message.data)


@handler("stand-by")
async def stand_by_others(message: Message) -> None:
    await stand_by(message.data)


def prepare(message: Message) -> dict[str, Any]:
    """Write the file that shows that the handler runs, and wait for the file it is to wait for."""
    steps: dict[str, Any] = message.data
    if "started" in steps:
        Path(f"{steps['started']}.{message.delivery_count}").write_text(str(os.getpid()))
    if "ended" in steps:
        wait_until_lost(message, Path(steps["ended"]))
    if "wait_for" in steps:
        wait_for(Path(steps["wait_for"]))
    return steps


def wait_until_lost(message: Message, ended: Path) -> None:
    wait_for_condition(lambda: message.lease is not None and message.lease.lost)
    ended.touch()


def finish(steps: dict[str, Any], message: Message) -> None:
    """End as the message says; by default return."""
    if message.delivery_count > steps.get("deliveries", sys.maxsize):
        return
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
