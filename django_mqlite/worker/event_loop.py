"""The one event loop of a worker process, for its async handlers."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import replace
from threading import Lock, Thread
from typing import Any

from ..guard import get_logger
from ..models import Message
from .executor import DeliveryResult

logger = get_logger("django_mqlite.worker")

OnFinished = Callable[[DeliveryResult], None]


class EventLoop:
    """Runs coroutines in a thread of its own, which starts with the first of them."""

    def __init__(
        self,
        run: Callable[[Message], Coroutine[Any, Any, DeliveryResult]],
        *,
        new_context: Callable[[], Context] = copy_context,
        on_stopped: Callable[[], None] = lambda: None,
    ) -> None:
        """`new_context` returns the context for a message's task.

        `on_stopped` is called when a handler has stopped the loop under all of them.
        """
        self._run = run
        self._new_context = new_context
        self._on_stopped = on_stopped
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
            self._cancel_remaining(self._loop)
            self._loop.close()

    def _cancel_remaining(self, loop: asyncio.AbstractEventLoop) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=1))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._run_until_closed
                self._thread = Thread(target=run, name="mqlite-event-loop", daemon=True)
                self._thread.start()
            return self._loop

    def _run_until_closed(self) -> None:
        assert self._loop is not None  # noqa: S101 - it has just been made
        try:
            self._loop.run_forever()
        finally:  # stopped by a handler, or a task of one has raised SystemExit
            if not self._closing:
                logger.error("a handler has stopped the event loop of all async handlers")
                self._on_stopped()

    def _begin(self, message: Message, on_finished: OnFinished) -> None:
        loop, coroutine = asyncio.get_running_loop(), self._run(message)
        try:
            task = loop.create_task(coroutine, context=self._new_context())
        except Exception as error:  # noqa: BLE001 - of a task factory that a handler has set
            coroutine.close()
            on_finished(DeliveryResult(message=message, error=error))
            return
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
