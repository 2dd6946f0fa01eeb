"""Run a handler for one message and return how the delivery ended."""

import asyncio
import contextlib
import gc
import inspect
import os
import traceback
from collections.abc import Awaitable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any, TypeVar, cast

from asgiref.sync import async_to_sync
from django.db import Error, connections, transaction

from .. import timing
from ..exceptions import ErrorDetails, TransactionLeftOpen, describe_error
from ..guard import get_logger
from ..handlers import Handler, check_has_run, handler_of, outcome_of
from ..models import Message
from ..transactions import write_transaction
from ..types import HandlerResult, Outcome, State
from .delivery_context import DeliveryContexts, end_forked_children, exit_if_forked

logger = get_logger("django_mqlite.worker")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The result of a delivery. `outcome` is set only if the handler returned a HandlerResult."""

    message: Message
    error: BaseException | None
    outcome: Outcome | None = None
    ending: Outcome = field(init=False)
    """The outcome that the handler returned, or the one that follows from `error`."""
    details: ErrorDetails | None = field(init=False, default=None)
    """The text of the error. Errors are foreign code, so it is read here, in the thread or task
    of the handler, and never by the consumer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ending", self.outcome or outcome_of(self.error))
        if self.error is not None:
            object.__setattr__(self, "details", describe_error(self.error))

    @property
    def settled(self) -> bool:
        """True if the handler settled the message itself, or in its atomic transaction."""
        return self.message.state != State.LOCKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Run handlers, each delivery in its own context."""

    handlers: Mapping[str, Handler]
    using: str
    contexts: DeliveryContexts = field(default_factory=DeliveryContexts)

    def is_async(self, message: Message) -> bool:
        """Return True if the message must be run with run_async()."""
        context = self.contexts.new_context()
        return context.run(handler_of, message, self.handlers).is_async

    def run(self, message: Message) -> DeliveryResult:
        """Run the message's handler and return the result; nothing that it raises is propagated."""
        return self.contexts.new_context().run(self._run, message)

    def _run(self, message: Message) -> DeliveryResult:
        handler = handler_of(message, self.handlers)
        own_thread = self.contexts.enter(message)
        limited = _within_timeout(handler, self._timeout_ms(message))
        ended = clean_up_delivery(handler, _ended(limited, message, self.using))
        if own_thread.is_used:  # by an event loop that the handler has run itself
            ended = own_thread.end(partial(clean_up_delivery, handler, ended)).result()
        return ended

    async def run_async(self, message: Message) -> DeliveryResult:
        """The same for a coroutine function, in a context from `contexts.new_context()`.

        A cancellation is an answer like any other.
        """
        own_thread = self.contexts.enter(message)
        handler = handler_of(message, self.handlers)
        ended = await _handle_async(handler, message)
        limit_ms = self._timeout_ms(message)
        if limit_ms is not None and is_overdue(message, limit_ms) and not _handles_cancel(message):
            ended = DeliveryResult(message=message, error=overdue_error(limit_ms))
        if own_thread.is_used or ended.settled:
            return await _wait_for_thread(
                own_thread.end(partial(clean_up_delivery, handler, ended))
            )
        clear_frame_locals(ended.error)
        return ended

    def _timeout_ms(self, message: Message) -> int | None:
        """Return the timeout of the queue's handler, which limits tasks in the queue as well."""
        handler = self.handlers.get(message.queue)
        return None if handler is None else handler.timeout_ms


def overdue_error(limit_ms: int) -> TimeoutError:
    """Return the error of a delivery that its handler's timeout has ended."""
    return TimeoutError(f"the handler ran longer than its timeout, {limit_ms / 1000:g} s")


def is_overdue(message: Message, limit_ms: int) -> bool:
    """Return whether the handler has had its time and has not settled the message."""
    ran_ms = timing.now_ms() - timing.epoch_ms(message.locked_at)
    return message.state == State.LOCKED and ran_ms > limit_ms


def _within_timeout(handler: Handler, limit_ms: int | None) -> Handler:
    """Return a handler that runs this one and raises TimeoutError if it ends too late.

    It raises inside the transaction of an atomic handler, which is rolled back.
    """
    if limit_ms is None:
        return handler
    return replace(handler, function=partial(_call_within, limit_ms, handler))


def _call_within(limit_ms: int, handler: Handler, message: Message) -> object:
    try:
        returned = call(handler, message)
    except BaseException as error:
        if is_overdue(message, limit_ms):
            raise overdue_error(limit_ms) from error
        raise
    if is_overdue(message, limit_ms):
        raise overdue_error(limit_ms)
    return returned


def _handles_cancel(message: Message) -> bool:
    """Return whether the coroutine was cancelled at its timeout and may still decide how it ends.

    One that goes on too long after that has its lease given up.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0 and not message.lease_lost


# The frames of these two are in the traceback of the error, so none of their locals may refer to
# it: such a cycle would keep everything the handler had in its frames alive.


def _ended(handler: Handler, message: Message, using: str) -> DeliveryResult:
    try:
        return delivery_result(message, run_handler(handler, message, using))
    except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends the delivery, not us
        return DeliveryResult(message=message, error=error)


async def _handle_async(handler: Handler, message: Message) -> DeliveryResult:
    pid = os.getpid()
    try:
        returned = await cast(Awaitable[object], handler.function(message))
        exit_if_forked(pid, returned)
        check_has_run(returned)
        return delivery_result(message, returned)
    except BaseException as error:  # noqa: BLE001 - see _ended()
        exit_if_forked(pid, error)
        return DeliveryResult(message=message, error=error)


async def _wait_for_thread(future: Future[T]) -> T:
    """Wait for the result even if the delivery is cancelled: its thread is not free before."""
    waited = asyncio.wrap_future(future)
    while True:
        try:
            return await asyncio.shield(waited)
        except asyncio.CancelledError:
            if waited.cancelled():
                raise


def clean_up_delivery(handler: Handler, ended: DeliveryResult) -> DeliveryResult:
    """Clean up the connections of this thread and return the result of the delivery."""
    clear_frame_locals(ended.error)
    rolled_back = clean_up_connections()
    if rolled_back or not handler.atomic:
        sync_state_from_database(ended.message)
    if rolled_back and ended.error is None:
        # Everything that the handler wrote was rolled back, so the delivery has failed.
        return DeliveryResult(message=ended.message, error=TransactionLeftOpen(rolled_back))
    return ended


def clear_frame_locals(error: BaseException | None) -> None:
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


def delivery_result(message: Message, returned: object) -> DeliveryResult:
    """Return the result of a delivery whose handler returned `returned`."""
    if isinstance(returned, HandlerResult):
        return DeliveryResult(message=message, error=returned.error, outcome=returned.outcome)
    return DeliveryResult(message=message, error=None)


def run_handler(handler: Handler, message: Message, using: str) -> object:
    """Run the handler in this thread, in a transaction if it is atomic, and return its result."""
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
    """Call the handler and return its result; awaitables are run to completion."""
    result = end_forked_children(_call, handler, message)
    check_has_run(result)
    return result


def _call(handler: Handler, message: Message) -> object:
    result = handler.function(message)
    if result is not None and inspect.isawaitable(result):
        return async_to_sync(_wait_for)(result)
    return result


async def _wait_for(result: Awaitable[object]) -> object:
    return await result


def sync_state_from_database(message: Message) -> None:
    """Mark the message as locked again if the handler's own settle was rolled back.

    The worker then settles the delivery.
    """
    if message.state == State.LOCKED:
        return
    messages = Message.objects.using(message._state.db)
    with contextlib.suppress(Error):  # if the state is unknown, the lease decides
        if messages.filter(pk=message.pk, lock_token=message.claimed_token).exists():
            message.state = State.LOCKED


def clean_up_connections() -> list[str]:
    """Prepare the connections for the next message; return aliases with a rolled-back transaction.

    SQLite connections do not go stale, and reopening one for each message costs more than the
    message: they are closed after an error only. The others follow Django's rule. Never raises: the
    thread would be lost, and its message renewed for ever.
    """
    undone = []
    for connection in connections.all(initialized_only=True):
        try:
            if _is_in_transaction(connection):
                undone.append(connection.alias)
            _clean_up(connection)
        except Exception:
            logger.exception("discarding a broken connection to database %r", connection.alias)
            del connections[connection.alias]
    return undone


def _is_in_transaction(connection: Any) -> bool:
    if connection.vendor != "sqlite" or connection.connection is None:
        return False
    return bool(connection.connection.in_transaction)


def _clean_up(connection: Any) -> None:
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
    """Return True if the handler left a transaction open or turned autocommit off.

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
