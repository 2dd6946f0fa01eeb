"""Ways in which a handler starts processes, and how that ends."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import django

LONG = 60
PATIENCE = 20


def terminate() -> int | None:
    """At once: it may not even have begun to run."""
    process = multiprocessing.Process(target=time.sleep, args=(LONG,))
    process.start()
    process.terminate()
    return exit_code_of(process)


def interrupt() -> int | None:
    ready = multiprocessing.Event()
    process = multiprocessing.Process(target=sleep_after, args=(ready,))
    process.start()
    ready.wait(PATIENCE)
    # A process that was forked from a thread notices a signal on Python 3.13.0 only if the signal
    # interrupts a system call, so one that arrives just before time.sleep() has to be sent again.
    deadline = time.monotonic() + PATIENCE
    while process.exitcode is None and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        exit_code_of(process, seconds=2)
    return process.exitcode


def sleep_after(ready: Any) -> None:
    ready.set()
    time.sleep(LONG)


def fork() -> int | None:
    """Without multiprocessing, and the signal comes at once again."""
    pid = os.fork()
    if pid == 0:
        time.sleep(LONG)
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fork_and_return() -> int | None:
    """The child returns from the handler."""
    return fork_and(lambda: None)


def fork_and_raise() -> int | None:
    """The child raises out of the handler."""
    return fork_and(interrupt_self)


def fork_and_exit() -> int | None:
    """The child leaves the handler by sys.exit()."""
    return fork_and(lambda: sys.exit(3))


def interrupt_self() -> None:
    raise KeyboardInterrupt


def fork_and(leave: Callable[[], object]) -> int | None:
    """Fork; the child leaves the handler in this way. Return its exit code, or None."""
    pid = os.fork()
    if pid == 0:
        leave()
        raise InChild
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


class InChild(Exception):
    """Raised in a child that is to return from the handler."""


def run() -> int | None:
    process = multiprocessing.Process(target=abs, args=(-1,))
    process.start()
    return exit_code_of(process)


def map_in_pool() -> list[int]:
    """On its way out it terminates its processes."""
    with multiprocessing.Pool(2) as pool:
        return pool.map_async(abs, [-1, -2]).get(PATIENCE)


def map_in_executor() -> list[int]:
    with ProcessPoolExecutor(2) as executor:
        return list(executor.map(abs, [-1, -2], timeout=PATIENCE))


def name_start_method() -> str:
    return multiprocessing.get_start_method()


def set_django_up() -> list[bool]:
    """In processes that begin with nothing set up."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, initializer=django.setup) as pool:
        return pool.map_async(has_models, [1, 2]).get(PATIENCE)


def has_models(_: int) -> bool:
    return django.apps.apps.models_ready


def exit_code_of(process: Any, seconds: float = PATIENCE) -> int | None:
    """Wait for the exit code by polling.

    join() and exitcode return None while another thread, in Process.start(), reaps the same child.
    """
    deadline = time.monotonic() + seconds
    while process.exitcode is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return process.exitcode


WAYS = {
    way.__name__: way
    for way in (
        terminate,
        interrupt,
        fork,
        fork_and_return,
        fork_and_raise,
        fork_and_exit,
        run,
        map_in_pool,
        map_in_executor,
        name_start_method,
        set_django_up,
    )
}


def take(order: dict[str, str]) -> None:
    """Start processes in that way, and write how it ended."""
    try:
        outcome = repr(WAYS[order["way"]]())
    except InChild:
        return
    except Exception as error:  # noqa: BLE001 - for the test to see
        outcome = repr(error)
    Path(f"{order['outcome']}.part").write_text(outcome)
    Path(f"{order['outcome']}.part").rename(order["outcome"])
