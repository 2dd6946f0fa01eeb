"""Ways in which a handler starts processes, each of which returns how they ended."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import django
from asgiref.sync import sync_to_async

LONG = 60
PATIENCE = 20

# multiprocessing and concurrent.futures


def terminate() -> int | None:
    """Terminate the process at once, perhaps before it has begun to run."""
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


def run() -> int | None:
    process = multiprocessing.Process(target=abs, args=(-1,))
    process.start()
    return exit_code_of(process)


def map_in_pool() -> list[int]:
    """Map in a pool, which terminates its processes on exit."""
    with multiprocessing.Pool(2) as pool:
        return pool.map_async(abs, [-1, -2]).get(PATIENCE)


def map_in_executor() -> list[int]:
    with ProcessPoolExecutor(2) as executor:
        return list(executor.map(abs, [-1, -2], timeout=PATIENCE))


def set_django_up() -> list[bool]:
    """Set Django up in spawned processes."""
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


# Forks


class InChild(Exception):
    """Raised in a child that is to return from the handler."""


def fork() -> int | None:
    """Fork, and terminate the child at once."""
    pid = os.fork()
    if pid == 0:
        time.sleep(LONG)
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fork_and(leave: Callable[[], object]) -> int | None:
    """Fork; the child leaves the handler in this way. Return its exit code, or None."""
    pid = os.fork()
    if pid == 0:
        leave()
        raise InChild
    deadline = time.monotonic() + PATIENCE
    while (code := exit_code_of_fork(pid)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return end_fork(pid) if code is None else code


async def fork_in_coroutine(leave: Callable[[], Awaitable[object]]) -> int | None:
    """Fork; the child leaves the coroutine in this way. Return its exit code, or None."""
    pid = os.fork()
    if pid == 0:
        await leave()
        raise InChild
    deadline = time.monotonic() + PATIENCE
    while (  # noqa: ASYNC110 - the end of a process sets no event
        code := exit_code_of_fork(pid)
    ) is None and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return end_fork(pid) if code is None else code


def exit_code_of_fork(pid: int) -> int | None:
    """Return the exit code, or None while the process runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def end_fork(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def interrupt_self() -> None:
    raise KeyboardInterrupt


async def return_at_once() -> None:
    """Return without awaiting anything."""


async def raise_error() -> None:
    raise KeyError


async def raise_and_clean_up() -> None:
    try:
        raise KeyError
    finally:
        await asyncio.sleep(0)


async def run_own_loop() -> None:
    asyncio.run(asyncio.sleep(0.01))


async def fork_and_await_future() -> int | None:
    """Let the child wait for a future that another task of the worker sets."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(LONG, future.cancel)
    return await fork_in_coroutine(lambda: future)


async def fork_in_task_and_return() -> int | None:
    """Fork in a task of the handler, and let the child return from the task."""

    async def run() -> int | None:
        with contextlib.suppress(InChild):
            return await fork_in_coroutine(return_at_once)
        return None

    (code,) = await asyncio.gather(run())
    return code


async def fork_in_task_and_yield() -> int | None:
    """Fork in a task of the handler, and let the child return control to the event loop."""
    return await asyncio.create_task(fork_in_coroutine(lambda: asyncio.sleep(0)))


WAYS = {
    "terminate": terminate,
    "interrupt": interrupt,
    "fork": fork,
    "fork_and_return": partial(fork_and, lambda: None),
    "fork_and_raise": partial(fork_and, interrupt_self),
    "fork_and_exit": partial(fork_and, partial(sys.exit, 3)),
    "run": run,
    "map_in_pool": map_in_pool,
    "map_in_executor": map_in_executor,
    "name_start_method": multiprocessing.get_start_method,
    "set_django_up": set_django_up,
}
ASYNC_WAYS = {
    "fork_and_yield": partial(fork_in_coroutine, lambda: asyncio.sleep(0)),
    "fork_and_sleep": partial(fork_in_coroutine, lambda: asyncio.sleep(LONG)),
    "fork_and_await_thread": partial(fork_in_coroutine, lambda: sync_to_async(abs)(-1)),
    "fork_and_await_future": fork_and_await_future,
    "fork_and_await_after_exception": partial(fork_in_coroutine, raise_and_clean_up),
    "fork_and_raise_in_coroutine": partial(fork_in_coroutine, raise_error),
    "fork_and_return_from_coroutine": partial(fork_in_coroutine, return_at_once),
    "fork_and_run_own_loop": partial(fork_in_coroutine, run_own_loop),
    "fork_in_task_and_yield": fork_in_task_and_yield,
    "fork_in_task_and_return": fork_in_task_and_return,
}


# Orders in messages


def start(order: dict[str, str]) -> None:
    """Start processes in the given way, and write the outcome to a file."""
    try:
        outcome = repr(WAYS[order["way"]]())
    except InChild:
        return
    except Exception as error:  # noqa: BLE001 - for the test to see
        outcome = repr(error)
    write(order, outcome)


async def start_in_coroutine(order: dict[str, str]) -> None:
    """Start processes in the given way, perhaps of a coroutine, and write the outcome."""
    if order["way"] in WAYS:
        start(order)
        return
    try:
        outcome = repr(await ASYNC_WAYS[order["way"]]())
    except InChild:
        return
    write(order, outcome)


async def stand_by(order: dict[str, str]) -> None:
    """Run until the test ends it; report any other process than the worker that runs this."""
    pid = os.getpid()
    write(order | {"outcome": f"{order['outcome']}.ready"}, str(pid))
    while not has_ended(order):
        if os.getpid() != pid:
            write(order, str(os.getpid()))
        await asyncio.sleep(0.001)


def has_ended(order: dict[str, str]) -> bool:
    return Path(order["until"]).exists()


def write(order: dict[str, str], outcome: str) -> None:
    """Write the outcome for the test."""
    Path(f"{order['outcome']}.part").write_text(outcome)
    Path(f"{order['outcome']}.part").rename(order["outcome"])
