"""End the processes that handlers fork without multiprocessing, before they act as the worker.

A forked process has a copy of the worker's stack below the handler. When the handler returns,
raises, or, in a coroutine, waits, the copy would continue as a second worker with the same leases,
connections and event loop.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..types import HandlerResult

T = TypeVar("T")


def end_forked_children(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call the function; end any process that it forks and that returns from it."""
    pid = os.getpid()
    try:
        result = function(*args, **kwargs)
    except BaseException as error:
        _exit_if_forked(pid, error)
        raise
    _exit_if_forked(pid, result)
    return result


def _exit_if_forked(pid: int, result: object) -> None:
    """Exit if this process was forked from `pid`, with the exit code that `result` implies.

    It exits at once, because it must not use the connections of process `pid`, not even to close
    them.
    """
    if os.getpid() == pid:
        return
    error = result.error if isinstance(result, HandlerResult) else result
    match error:
        case SystemExit(code=None | 0):
            os._exit(0)
        case SystemExit(code=int(code)):
            os._exit(code & 0xFF)
        case BaseException():
            os._exit(1)
    os._exit(0)


class ForkGuard(Coroutine[Any, Any, T]):
    """A coroutine that runs another one and ends any process that it forks.

    The forked process ends when the coroutine returns, raises or waits in it. Waiting would return
    to the event loop, which shares its selector and its wake-up socket with the worker's and would
    run the coroutines of other deliveries a second time. The exit code is then 1, because the
    process has not done what it was forked for.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._pid = os.getpid()

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        try:
            return self._step(self._coroutine.throw, *error)
        finally:
            del error  # its traceback refers to this frame

    def close(self) -> None:
        self._step(self._coroutine.close)

    def __await__(self) -> "ForkGuard[T]":
        return self

    __iter__ = __await__

    def __next__(self) -> Any:
        return self.send(None)

    def __getattr__(self, name: str) -> Any:
        """Return what debuggers and libraries read from a coroutine, such as `cr_frame`."""
        return getattr(self._coroutine, name)

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            awaited = step(*arguments)
        except StopIteration as stop:
            _exit_if_forked(self._pid, stop.value)
            raise
        except BaseException as error:
            _exit_if_forked(self._pid, error)
            raise
        finally:
            del arguments  # see throw()
        if os.getpid() != self._pid:
            os._exit(1)
        return awaited


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that guards the tasks and threads that handlers start in it."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(_guarded_task)
    loop.set_default_executor(_GuardedThreads(thread_name_prefix="asyncio"))
    loop.shutdown_default_executor = _keep_threads  # type: ignore[method-assign]
    return loop


async def _keep_threads(timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's name
    """Ignore a handler that shuts down the threads: without them, to_thread() would always fail."""


def _guarded_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> "asyncio.Task[Any]":
    guarded = ForkGuard(coroutine) if asyncio.iscoroutine(coroutine) else coroutine
    return asyncio.Task(guarded, loop=loop, **options)


class _GuardedThreads(ThreadPoolExecutor):
    """The threads of asyncio.to_thread(), in which a forked process would wait forever."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        return super().submit(end_forked_children, fn, *args, **kwargs)
