"""Handler timeouts in drain(), where no other thread watches the handler."""

import asyncio
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from .. import timing
from ..handlers import Handler
from ..models import Message
from ..timing import epoch_ms
from ..types import HandlerResult, State
from ..worker.executor import call, overdue_error

CHECK_INTERVAL = 0.01
"""Seconds between two checks of a coroutine's deadline."""


def with_timeout(handler: Handler, limit_ms: int | None, message: Message) -> Handler:
    """Return a handler that runs this one and fails with TimeoutError if it takes too long.

    A coroutine is cancelled. A function cannot be interrupted, so it fails when it has ended.
    """
    if limit_ms is None:
        return handler
    run = _run_async if handler.is_async else _run
    deadline = Deadline(message=message, limit_ms=limit_ms)
    return replace(handler, function=partial(run, handler, deadline))


@dataclass(slots=True, kw_only=True)
class Deadline:
    """The deadline of a delivery, in real time plus the time that a FakeClock was moved."""

    message: Message
    limit_ms: int
    has_cancelled: bool = False
    _started: float = field(default_factory=time.monotonic)

    @property
    def has_passed(self) -> bool:
        """True if the time is up and the handler has not settled the message."""
        moved_ms = timing.now_ms() - epoch_ms(self.message.locked_at)
        passed_ms = (time.monotonic() - self._started) * 1_000 + moved_ms
        return passed_ms > self.limit_ms and self.message.state == State.LOCKED

    @property
    def error(self) -> TimeoutError:
        """The error that the delivery fails with, the same as in a worker."""
        return overdue_error(self.limit_ms)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise the error after the block if the deadline has passed.

        A cancelled coroutine may catch the cancellation and return, as in a worker.
        """
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self.has_caused(error) or self._is_missed:
                raise self.error from error
            raise
        if self._is_missed:
            raise self.error

    @property
    def _is_missed(self) -> bool:
        return self.has_passed and not self.has_cancelled

    def has_caused(self, error: BaseException | None) -> bool:
        """Return True if the error is the cancellation of the coroutine at the deadline."""
        return self.has_cancelled and isinstance(error, asyncio.CancelledError)

    async def cancel_when_passed(self, task: Any) -> None:
        """Cancel the task at the deadline."""
        while not self.has_passed:  # noqa: ASYNC110 - moving a FakeClock sets no event
            await asyncio.sleep(CHECK_INTERVAL)
        self.has_cancelled = True
        task.cancel()


def _run(handler: Handler, deadline: Deadline, message: Message) -> object:
    with deadline.enforced():
        return call(handler, message)


async def _run_async(handler: Handler, deadline: Deadline, message: Message) -> object:
    watch = asyncio.ensure_future(deadline.cancel_when_passed(asyncio.current_task()))
    try:
        with deadline.enforced():
            returned = await cast(Awaitable[object], handler.function(message))
    finally:
        watch.cancel()
    if isinstance(returned, HandlerResult) and deadline.has_caused(returned.error):
        return replace(returned, error=deadline.error)
    return returned
