"""The one event loop of a worker process, for its async handlers."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import replace
from threading import Lock, Thread
from typing import Any

from ..guard import get_logger
from ..models import Message
from .executor import DeliveryResult
from .forks import new_event_loop

logger = get_logger("django_mqlite.worker")

CANCEL_TIMEOUT = 1.0
"""Seconds that cancelled tasks have to end when the loop is closed."""

OnFinished = Callable[[DeliveryResult], None]


class EventLoop:
    """Run coroutines in a separate thread, which starts with the first coroutine."""

    def __init__(
        self,
        run: Callable[[Message], Coroutine[Any, Any, DeliveryResult]],
        *,
        new_context: Callable[[], Context] = copy_context,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        """Create an event loop; `new_context` returns the context for a message's task.

        `on_broken` is called if the loop fails permanently, for example because a handler has
        closed one of its file descriptors.
        """
        self._run = run
        self._new_context = new_context
        self._on_broken = on_broken
        self._closing = False
        self._guard = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        # Accessed only in the loop's thread.
        self._tasks: dict[int, asyncio.Task[DeliveryResult]] = {}
        self._cancel_reasons: dict[int, BaseException] = {}

    def start(self, message: Message, on_finished: OnFinished) -> None:
        """Run the message's handler as a task; `on_finished` is called in the loop's thread."""
        self._running_loop().call_soon_threadsafe(self._begin, message, on_finished)

    def cancel(self, message: Message, reason: BaseException) -> None:
        """Cancel the message's task; `reason` becomes the error of its delivery."""
        self._running_loop().call_soon_threadsafe(self._cancel, message, reason)

    def close(self) -> None:
        """Close the loop and cancel the remaining tasks, whose messages have been released."""
        self._closing = True
        if self._loop is None or self._thread is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)
        if not self._thread.is_alive():  # a blocked loop ends with the process
            # Handlers may have damaged the loop, so errors are ignored.
            with contextlib.suppress(BaseException), contextlib.closing(self._loop):
                self._cancel_remaining(self._loop)

    def _cancel_remaining(self, loop: asyncio.AbstractEventLoop) -> None:
        deadline = loop.time() + CANCEL_TIMEOUT
        loop.call_at(deadline, loop.stop)
        for task in self._tasks.values():
            task.cancel()
            task.add_done_callback(lambda _: loop.stop())
        while self._tasks and loop.time() < deadline:
            self._run_until_stopped(loop)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                self._loop = new_event_loop()
                run = self._run_until_closed
                self._thread = Thread(target=run, name="mqlite-event-loop", daemon=True)
                self._thread.start()
            return self._loop

    def _run_until_closed(self) -> None:
        """Run the loop until close(); restart it if a handler stops it, because other tasks run."""
        assert self._loop is not None  # noqa: S101 - set before the thread starts
        try:
            while not self._closing:
                self._run_until_stopped(self._loop)
        except BaseException:
            logger.exception(
                "the event loop of the async handlers failed; the worker is shutting down"
            )
            self._on_broken()

    def _run_until_stopped(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until close() or a handler stops it.

        asyncio raises the SystemExit or KeyboardInterrupt of a task twice: out of the loop, and
        where the handler awaits the task, which fails its delivery.
        """
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            name = type(error).__name__
            logger.exception("a task or callback of an async handler raised %s", name)
        else:
            if not self._closing:
                logger.error("an async handler stopped the event loop; the loop was restarted")

    def _begin(self, message: Message, on_finished: OnFinished) -> None:
        # Not loop.create_task(): a handler may have set a task factory that raises.
        task = asyncio.Task(
            self._run(message), loop=asyncio.get_running_loop(), context=self._new_context()
        )
        self._tasks[id(message)] = task
        task.add_done_callback(lambda done: on_finished(self._end(message, done)))

    def _cancel(self, message: Message, reason: BaseException) -> None:
        task = self._tasks.get(id(message))
        if task is not None:
            self._cancel_reasons.setdefault(id(message), reason)
            task.cancel()

    def _end(self, message: Message, task: "asyncio.Task[DeliveryResult]") -> DeliveryResult:
        """Return the result of the finished task, which may have been cancelled before it ran."""
        del self._tasks[id(message)]
        reason = self._cancel_reasons.pop(id(message), None)
        if task.cancelled():
            return DeliveryResult(message=message, error=reason or asyncio.CancelledError())
        error = task.exception()
        if error is not None:  # not the handler's: run_async() catches those
            return DeliveryResult(message=message, error=error)
        finished = task.result()
        if reason is not None and isinstance(finished.error, asyncio.CancelledError):
            return replace(finished, error=reason)
        return finished
