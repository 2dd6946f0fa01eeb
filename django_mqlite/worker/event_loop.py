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

logger = get_logger("django_mqlite.worker")

CANCEL_TIMEOUT = 1.0
"""Seconds that tasks have to end when the loop is closed."""

OnFinished = Callable[[DeliveryResult], None]


class EventLoop:
    """Runs coroutines in a thread of its own, which starts with the first of them."""

    def __init__(
        self,
        run: Callable[[Message], Coroutine[Any, Any, DeliveryResult]],
        *,
        new_context: Callable[[], Context] = copy_context,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        """`new_context` returns the context for a message's task.

        `on_broken` is called if the loop cannot go on, for example because a handler has closed one
        of its file descriptors.
        """
        self._run = run
        self._new_context = new_context
        self._on_broken = on_broken
        self._closing = False
        self._guard = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        # Touched in the loop's thread only.
        self._tasks: dict[int, asyncio.Task[DeliveryResult]] = {}
        self._cancel_reasons: dict[int, BaseException] = {}

    def start(self, message: Message, on_finished: OnFinished) -> None:
        """Run the message's handler as a task; `on_finished` is called in the loop's thread."""
        self._running_loop().call_soon_threadsafe(self._begin, message, on_finished)

    def cancel(self, message: Message, because: BaseException) -> None:
        """Cancel the message's task; `because` is what its delivery failed of."""
        self._running_loop().call_soon_threadsafe(self._cancel, message, because)

    def close(self) -> None:
        """End the loop; tasks that still run are cancelled, their messages have been given back."""
        self._closing = True
        if self._loop is None or self._thread is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)
        if not self._thread.is_alive():  # or a coroutine blocks it, and it goes with the process
            # Handlers may have broken it.
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
                self._loop = asyncio.new_event_loop()
                run = self._run_until_closed
                self._thread = Thread(target=run, name="mqlite-event-loop", daemon=True)
                self._thread.start()
            return self._loop

    def _run_until_closed(self) -> None:
        """Run the loop, again whenever a handler stops it, because others have tasks in it."""
        assert self._loop is not None  # noqa: S101 - it has just been made
        try:
            while not self._closing:
                self._run_until_stopped(self._loop)
        except BaseException:
            logger.exception("the event loop of all async handlers is broken, so the worker ends")
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
                logger.error("an async handler stopped the event loop; it was started again")

    def _begin(self, message: Message, on_finished: OnFinished) -> None:
        # Without the loop's task factory: a handler may have set one that raises.
        task = asyncio.Task(
            self._run(message), loop=asyncio.get_running_loop(), context=self._new_context()
        )
        self._tasks[id(message)] = task
        task.add_done_callback(lambda done: on_finished(self._end(message, done)))

    def _cancel(self, message: Message, because: BaseException) -> None:
        task = self._tasks.get(id(message))
        if task is not None:
            self._cancel_reasons.setdefault(id(message), because)
            task.cancel()

    def _end(self, message: Message, task: "asyncio.Task[DeliveryResult]") -> DeliveryResult:
        """A task that is cancelled before its first step never comes to run anything."""
        del self._tasks[id(message)]
        because = self._cancel_reasons.pop(id(message), None)
        if task.cancelled():
            return DeliveryResult(message=message, error=because or asyncio.CancelledError())
        error = task.exception()
        if error is not None:  # run_async() answers for the handler; this is of what surrounds it
            return DeliveryResult(message=message, error=error)
        finished = task.result()
        if because is not None and isinstance(finished.error, asyncio.CancelledError):
            return replace(finished, error=because)
        return finished
