"""One message, one handler, one thread: run it and say how it ended."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from asgiref.sync import async_to_sync
from django.db import connections, reset_queries, transaction

from ..handlers import Handler
from ..models import Message
from ..types import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A delivery whose handler has returned or raised."""

    message: Message
    error: BaseException | None

    @property
    def settled(self) -> bool:
        """Whether the handler has settled the message itself, or atomically with its work."""
        return self.message.state != State.LOCKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Runs the handlers of their queues."""

    handlers: Mapping[str, Handler]
    using: str

    def run(self, message: Message) -> Finished:
        """Run the handler of the message's queue; whatever it raises is an answer, not an error."""
        handler = self.handlers[message.queue]
        reset_queries()
        try:
            if handler.atomic:
                self._run_atomic(handler, message)
            else:
                call(handler, message)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the delivery, not us
            return Finished(message=message, error=error)
        finally:
            tidy_connections()
        return Finished(message=message, error=None)

    def _run_atomic(self, handler: Handler, message: Message) -> None:
        try:
            with transaction.atomic(using=self.using):
                call(handler, message)
                if message.state == State.LOCKED:
                    message.complete()
        except BaseException:
            message.state = State.LOCKED  # rolled back, with the completion if it came so far
            raise


def call(handler: Handler, message: Message) -> None:
    """Call the function, to its end if it is a coroutine function."""
    if inspect.iscoroutinefunction(handler.function):
        async_to_sync(handler.function)(message)
    else:
        handler.function(message)


def tidy_connections() -> None:
    """Leave no connection behind that the next message could not use.

    SQLite connections do not go stale, and reopening one for each message costs more than the
    message: they are closed after an error only. The others follow Django's rule.
    """
    for connection in connections.all(initialized_only=True):
        if connection.vendor != "sqlite":
            connection.close_if_unusable_or_obsolete()
        elif connection.errors_occurred or connection.in_atomic_block:
            connection.close()
