"""Tasks of the worker processes that tests start."""

import os
import signal
from pathlib import Path

from django_mqlite.task_backend.compat import task

from .waiting import wait_for


@task(takes_context=True)
def double(context, number, *, started=None, wait=None, kill_attempts=0):
    """Twice the number, after saying that it runs, waiting, and dying as often as it is told to."""
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
