"""One message, one handler, one thread or task: run it and say how it ended."""

import asyncio
import contextlib
import gc
import inspect
import traceback
from collections.abc import Awaitable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, TypeVar, cast

from asgiref.sync import async_to_sync
from django.db import Error, connections, transaction

from ..exceptions import ErrorDetails, TransactionLeftOpen, describe_error
from ..guard import get_logger
from ..handlers import Handler, check_has_run, handler_of, outcome_of
from ..models import Message
from ..transactions import write_transaction
from ..types import Conclusion, Outcome, State
from .delivery_context import Surroundings

logger = get_logger("django_mqlite.worker")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A delivery whose handler has returned or raised; `outcome` if the handler has said it."""

    message: Message
    error: BaseException | None
    outcome: Outcome | None = None
    ending: Outcome = field(init=False)
    """The outcome, or what follows from the error."""
    said: ErrorDetails | None = field(init=False, default=None)
    """What the error says. It and its attributes are foreign code, so both are asked for here,
    where the handler ran, and not by the consumer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ending", self.outcome or outcome_of(self.error))
        if self.error is not None:
            object.__setattr__(self, "said", describe_error(self.error))

    @property
    def settled(self) -> bool:
        """Whether the handler has settled the message itself, or atomically with its work."""
        return self.message.state != State.LOCKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Runs the handlers of messages, each in a context of its own."""

    handlers: Mapping[str, Handler]
    using: str
    surroundings: Surroundings = field(default_factory=Surroundings)

    def is_async(self, message: Message) -> bool:
        """Whether run_async() is the one to run it."""
        context = self.surroundings.new_context()
        return context.run(handler_of, message, self.handlers).is_async

    def run(self, message: Message) -> Finished:
        """Run the message's handler; whatever it raises is an answer, not an error."""
        return self.surroundings.new_context().run(self._run, message)

    def _run(self, message: Message) -> Finished:
        handler = handler_of(message, self.handlers)
        own_thread = self.surroundings.enter(message)
        ended = conclude(handler, _ended(handler, message, self.using))
        if own_thread.is_used:  # by an event loop that the handler has run itself
            ended = own_thread.end(partial(conclude, handler, ended)).result()
        return ended

    async def run_async(self, message: Message) -> Finished:
        """The same for a coroutine function, in a context from `surroundings.new_context()`.

        A cancellation is an answer like any other.
        """
        own_thread = self.surroundings.enter(message)
        handler = handler_of(message, self.handlers)
        ended = await _ended_async(handler, message)
        if own_thread.is_used or ended.settled:
            return await _to_its_end(own_thread.end(partial(conclude, handler, ended)))
        forget_locals(ended.error)
        return ended


# The frames of these two are in the traceback of the error, so none of their locals may refer to
# it: such a cycle would keep everything the handler had in its frames alive.


def _ended(handler: Handler, message: Message, using: str) -> Finished:
    try:
        return finished(message, run_handler(handler, message, using))
    except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the delivery, not us
        return Finished(message=message, error=error)


async def _ended_async(handler: Handler, message: Message) -> Finished:
    try:
        returned = await cast(Awaitable[object], handler.function(message))
        check_has_run(returned)
        return finished(message, returned)
    except BaseException as error:  # noqa: BLE001 - see _ended()
        return Finished(message=message, error=error)


async def _to_its_end(future: Future[T]) -> T:
    """Wait for the result even if the delivery is cancelled: its thread is not free before."""
    waited = asyncio.wrap_future(future)
    while True:
        try:
            return await asyncio.shield(waited)
        except asyncio.CancelledError:
            if waited.cancelled():
                raise


def conclude(handler: Handler, ended: Finished) -> Finished:
    """Clean up in the thread whose connections the handler used; how the delivery ended then."""
    forget_locals(ended.error)
    rolled_back = tidy_connections()
    if rolled_back or not handler.atomic:
        sync_state_from_database(ended.message)
    if rolled_back and ended.error is None:
        # What it has written, and enqueued, is gone: it must not be told that it was done.
        return Finished(message=ended.message, error=TransactionLeftOpen(rolled_back))
    return ended


def forget_locals(error: BaseException | None) -> None:
    """Clear the local variables of the frames that the error has passed through.

    Some refer to the error again, those of asgiref and of Django's database errors among them, and
    so would keep what the handler had in its frames, a half-read query say, until Python collects
    its garbage. Never raises: what is freed there is foreign code.
    """
    seen: set[int] = set()
    errors = [error]
    with contextlib.suppress(Exception):
        while errors:
            error = errors.pop()
            if error is None or id(error) in seen:
                continue
            seen.add(id(error))
            for frame, _ in traceback.walk_tb(error.__traceback__):
                _clear(frame)
            errors += [error.__cause__, error.__context__]
            if isinstance(error, BaseExceptionGroup):
                errors += error.exceptions


def _clear(frame: FrameType) -> None:
    """Clear a frame that has ended.

    An error that several deliveries raise has frames of coroutines that go on elsewhere, and Python
    before 3.13 would end them. The garbage collector sees the code of a frame once it has ended.
    """
    if frame.f_code in gc.get_referents(frame):
        frame.clear()


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
        result = async_to_sync(_wait_for)(result)
    check_has_run(result)
    return result


async def _wait_for(result: Awaitable[object]) -> object:
    return await result


def sync_state_from_database(message: Message) -> None:
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
        _close(connection)
        del connections[connection.alias]  # closed inside a block it would never open again
    elif connection.vendor != "sqlite":
        connection.close_if_unusable_or_obsolete()
    elif connection.errors_occurred or _left_open(connection):
        _close(connection)
    else:
        _end_queries(connection)


def _left_open(connection: Any) -> bool:
    """Whether the handler has left a transaction open, or turned autocommit off.

    It would hold the write lock of the whole file for as long as this thread lives.
    """
    if connection.connection is None:
        return False
    changed = connection.autocommit != connection.settings_dict["AUTOCOMMIT"]
    return changed or _is_in_transaction(connection)


def _close(connection: Any) -> None:
    if connection.vendor == "sqlite" and connection.connection is not None:
        connection.connection.rollback()
        _end_queries(connection)  # or SQLite goes on with it, closed or not
    connection.close()


def _end_queries(connection: Any) -> None:
    """End the queries that have rows left; to be called outside a transaction.

    The snapshot of one would keep the WAL from being written back, and the next transaction from
    writing.
    """
    if connection.connection is not None and _is_half_read(connection):
        for referrer in gc.get_referrers(connection.connection):
            if isinstance(referrer, connection.Database.Cursor):
                referrer.close()


def _is_half_read(connection: Any) -> bool:
    """Python has no call for it, but SQLite refuses this before it sees that 0 is no file name."""
    try:
        connection.connection.execute("VACUUM INTO 0")
    except connection.Database.Error as error:
        return "in progress" in str(error)
    return False
