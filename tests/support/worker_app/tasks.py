"""Tasks of the worker processes that tests start."""

import os
import signal
from pathlib import Path

from django_mqlite.task_backend.compat import task

from . import waiting
from .waiting import wait_for
from .ways import start, start_in_coroutine


@task(takes_context=True)
def double(context, number, *, started=None, wait=None, kill_attempts=0):
    """Return twice the number; before, write `started`, wait for `wait`, or kill the process."""
    if started:
        Path(f"{started}.{context.attempt}").write_text(str(os.getpid()))
    if wait:
        wait_for(Path(wait))
    if context.attempt <= kill_attempts:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


@task()
async def double_async(number):
    return 2 * number


@task()
def fork(order):
    start(order)


@task()
async def fork_in_a_loop(order):
    await start_in_coroutine(order)


@task()
async def wait_until_cancelled(started, ended):
    await waiting.wait_until_cancelled({"started": started, "ended": ended})
