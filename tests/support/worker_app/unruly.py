"""Handlers that block the interpreter, never return, grow, or leave things behind."""

import asyncio
import contextlib
import ctypes
import importlib
import logging
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

from django.db import connection

from django_mqlite import handler
from django_mqlite.models import Message
from django_mqlite.worker.watchdogs import CHECK_INTERVAL

from .models import Effect, effect_of

logger = logging.getLogger("shop")

TIMEOUT = 0.5

if "MQLITE_TEST_DIE_YOUNG" in os.environ and multiprocessing.parent_process() is not None:
    os._exit(7)

if "MQLITE_TEST_IMPORT" in os.environ:
    imported = importlib.import_module(os.environ["MQLITE_TEST_IMPORT"])
    logger.info("imported version %s", imported.VERSION)


def begin(message: Message) -> dict[str, Any]:
    steps: dict[str, Any] = message.data
    Path(f"{steps['started']}.{message.delivery_count}").write_text(str(os.getpid()))
    return steps


@handler("holds")
def hold_the_interpreter(message: Message) -> None:
    """Hold the interpreter's lock for some seconds in the first delivery, like a slow regex."""
    steps = begin(message)
    if message.delivery_count == 1:
        ctypes.PyDLL(None).sleep(steps["seconds"])
    Effect.objects.create(**effect_of(message))


@handler("limited", timeout=TIMEOUT)
def work_too_long(message: Message) -> None:
    """Run the first delivery until the lease is lost, and on."""
    steps = begin(message)
    if message.delivery_count > 1:
        return
    deadline = time.monotonic() + 60
    while not message.lease.lost and time.monotonic() < deadline:
        time.sleep(0.01)
    Path(steps["told"]).touch()
    time.sleep(60)


@handler("opens")
def open_the_database(message: Message) -> None:
    """Open the file without SQLite: closing it drops the locks of the whole process."""
    with Path(connection.settings_dict["NAME"]).open("rb") as file:
        file.read(1)


@handler("wanders")
def change_the_directory(message: Message) -> None:
    """Change the directory until the worker has checked the files of its database."""
    os.chdir(message.data)
    time.sleep(1.5 * CHECK_INTERVAL)


@handler("stalls")
def hold_the_interpreter_each_time(message: Message) -> None:
    """Hold the interpreter longer than the lease, in every delivery."""
    ctypes.PyDLL(None).usleep(message.data["milliseconds"] * 1_000)


@handler("blocks", timeout=TIMEOUT)
async def block_the_loop(message: Message) -> None:
    """Block the first delivery: a coroutine that does not await cannot be cancelled."""
    steps = begin(message)
    if message.delivery_count == 1:
        time.sleep(steps["seconds"])  # noqa: ASYNC251 - on purpose


@handler("says")
def say(message: Message) -> None:
    logger.info("handled")


@handler("says-async")
async def say_in_the_loop(message: Message) -> None:
    await asyncio.sleep(0.01)
    logger.info("handled")
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)


@handler("noop-async")
async def do_nothing_in_the_loop(message: Message) -> None:
    """Return at once."""


_kept: list[bytes] = []


@handler("grow")
def grow(message: Message) -> None:
    """Allocate memory and keep it."""
    _kept.append(os.urandom(1) * (begin(message)["megabytes"] * 2**20))
