"""One message, one handler, one thread or task: run it and say how it ended."""

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from asgiref.sync import async_to_sync, sync_to_async
from django.db import Error, connections, transaction

from ..exceptions import TransactionLeftOpen
from ..failures import Described, described
from ..handlers import Handler, handler_of
from ..logs import current_message
from ..models import Message
from ..transactions import write_transaction
from ..types import Conclusion, Outcome, State

logger = logging.getLogger("django_mqlite.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A delivery whose handler has returned or raised; `outcome` if the handler has said it."""

    message: Message
    error: BaseException | None
    outcome: Outcome | None = None
    said: Described | None = field(init=False, default=None)
    """What the error says, asked for here, where the handler ran: that may take its time."""

    def __post_init__(self) -> None:
        if self.error is not None:
            object.__setattr__(self, "said", described(self.error))

    @property
    def settled(self) -> bool:
        """Whether the handler has settled the message itself, or atomically with its work."""
        return self.message.state != State.LOCKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Runs the handlers of messages."""

    handlers: Mapping[str, Handler]
    using: str

    def is_async(self, message: Message) -> bool:
        """Whether run_async() is the one to run it."""
        return handler_of(message, self.handlers).is_async

    def run(self, message: Message) -> Finished:
        """Run the message's handler; whatever it raises is an answer, not an error."""
        handler = handler_of(message, self.handlers)
        current_message.set((message.queue, message.pk))
        try:
            ended = finished(message, run_handler(handler, message, self.using))
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the delivery, not us
            ended = Finished(message=message, error=error)
        undone = tidy_connections()
        if not handler.atomic:
            believe_the_file(message)
        if undone and ended.error is None:
            # What it has written, and enqueued, is gone: it must not be told that it was done.
            ended = Finished(message=message, error=TransactionLeftOpen(undone))
        current_message.set(None)
        return ended

    async def run_async(self, message: Message) -> Finished:
        """The same for a coroutine function. A cancellation is an answer like any other."""
        current_message.set((message.queue, message.pk))  # of this task only
        try:
            handler = handler_of(message, self.handlers)
            returned = await cast(Awaitable[object], handler.function(message))
        except BaseException as error:  # noqa: BLE001 - see run()
            return Finished(message=message, error=error)
        finally:
            # Django runs the ORM of async code in one thread; its connections are there.
            await sync_to_async(tidy_connections)()
            current_message.set(None)
        return finished(message, returned)


def finished(message: Message, returned: object) -> Finished:
    """A delivery whose handler has returned this."""
    if isinstance(returned, Conclusion):
        return Finished(message=message, error=returned.error, outcome=returned.outcome)
    return Finished(message=message, error=None)


def run_handler(handler: Handler, message: Message, using: str) -> object:
    """Run it in this thread, atomically if it wants that; what it returns, or raises."""
    if handler.atomic:
        return _run_atomic(handler, message, using)
    return call(handler, message)


def _run_atomic(handler: Handler, message: Message, using: str) -> object:
    committed: list[bool] = []
    try:
        with write_transaction(using):
            # The first hook of the transaction: one of the handler's that raises comes later.
            transaction.on_commit(partial(committed.append, True), using=using)
            returned = call(handler, message)
            if message.state == State.LOCKED:
                message.complete()
    except BaseException:
        if not committed:
            message.state = State.LOCKED  # rolled back, with the completion if it came so far
        raise
    return returned


def call(handler: Handler, message: Message) -> object:
    """Call the function; what it returns is awaited if it can be, to its end."""
    result = handler.function(message)
    if result is not None and inspect.isawaitable(result):
        return async_to_sync(_wait_for)(result)
    return result


async def _wait_for(result: Awaitable[object]) -> object:
    return await result


def believe_the_file(message: Message) -> None:
    """Take a settle of the handler's own for undone that its transaction has rolled back.

    Then the delivery still has to be settled, and the instance does not know it.
    """
    if message.state == State.LOCKED:
        return
    messages = Message.objects.using(message._state.db)
    with contextlib.suppress(Error):  # unknown: the lease decides in the end
        if messages.filter(pk=message.pk, lock_token=message.claimed_token).exists():
            message.state = State.LOCKED


def tidy_connections() -> list[str]:
    """Leave no connection behind that the next message could not use; whose transactions it undid.

    SQLite connections do not go stale, and reopening one for each message costs more than the
    message: they are closed after an error only. The others follow Django's rule. Never raises: the
    thread would be lost, and its message renewed for ever.
    """
    undone = []
    for connection in connections.all(initialized_only=True):
        try:
            if _is_in_transaction(connection):
                undone.append(connection.alias)
            _tidy(connection)
        except Exception:
            logger.exception("a connection to database %r is given up", connection.alias)
            del connections[connection.alias]
    return undone


def _is_in_transaction(connection: Any) -> bool:
    if connection.vendor != "sqlite" or connection.connection is None:
        return False
    return bool(connection.connection.in_transaction)


def _tidy(connection: Any) -> None:
    connection.queries_log.clear()  # with DEBUG Django remembers them
    if connection.in_atomic_block:
        connection.close()
        del connections[connection.alias]  # closed inside a block it would never open again
    elif connection.vendor != "sqlite":
        connection.close_if_unusable_or_obsolete()
    elif connection.errors_occurred or _left_open(connection):
        connection.close()  # which rolls back what the handler has begun and not ended


def _left_open(connection: Any) -> bool:
    """Whether the handler has left a transaction open, or turned autocommit off.

    It would hold the write lock of the whole file for as long as this thread lives.
    """
    if connection.connection is None:
        return False
    changed = connection.autocommit != connection.settings_dict["AUTOCOMMIT"]
    return changed or _is_in_transaction(connection)
