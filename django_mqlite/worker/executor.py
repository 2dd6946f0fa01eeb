"""Run a handler for one message and return the result of the delivery."""

import asyncio
import contextlib
import gc
import inspect
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
from ..exceptions import ErrorDetails, LockLost, TransactionLeftOpen, describe_error
from ..guard import get_logger
from ..handlers import Handler, check_has_run, handler_of
from ..message import timeout_ms_of
from ..models import Message
from ..outcomes import DEFAULT_POLICY, RetryPolicy, outcome_of
from ..tracing import delivery_span
from ..transactions import write_transaction
from ..types import Completion, HandlerResult, Outcome, State
from .delivery_context import DeliveryContexts, DeliveryThread
from .forks import ForkGuard, end_forked_children

logger = get_logger("django_mqlite.worker")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The result of a delivery. `returned` is set only if the handler returned a HandlerResult."""

    message: Message
    error: BaseException | None
    returned: Outcome | None = None
    retries: RetryPolicy = DEFAULT_POLICY
    outcome: Outcome = field(init=False)
    """The outcome that the handler returned, or the one that follows from `error`."""
    details: ErrorDetails | None = field(init=False, default=None)
    """The text of the error. Errors are foreign code, so it is read in the thread or task of the
    handler, never by the consumer."""

    def __post_init__(self) -> None:
        attempt = self.message.delivery_count
        outcome = self.returned or outcome_of(self.error, self.retries, attempt=attempt)
        object.__setattr__(self, "outcome", outcome)
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
        """Run the message's handler and return the result; exceptions are not propagated."""
        return self.contexts.new_context().run(self._run, message)

    def _run(self, message: Message) -> DeliveryResult:
        handler = handler_of(message, self.handlers)
        own_thread = self.contexts.enter(message)
        limited = _within_timeout(handler, self._timeout_ms(message))
        with delivery_span(message) as finish:
            result = clean_up_delivery(handler, _result(limited, message, self.using))
            if own_thread.is_used:  # by an event loop that the handler ran itself
                result = own_thread.end(partial(clean_up_delivery, handler, result)).result()
            finish(result.error)
        return result

    async def run_async(self, message: Message) -> DeliveryResult:
        """Run a coroutine handler, in a context from `contexts.new_context()`; return the result.

        Cancellation is returned as an error.
        """
        own_thread = self.contexts.enter(message)
        with delivery_span(message) as finish:
            result = await self._run_async(message, own_thread)
            finish(result.error)
        return result

    async def _run_async(self, message: Message, own_thread: DeliveryThread) -> DeliveryResult:
        handler = handler_of(message, self.handlers)
        result = await _handle_async(handler, message)
        limit_ms = self._timeout_ms(message)
        if limit_ms is not None and is_overdue(message, limit_ms) and not _handles_cancel(message):
            result = failed(handler, message, overdue_error(limit_ms))
        if own_thread.is_used or result.settled:
            return await _wait_for_thread(
                own_thread.end(partial(clean_up_delivery, handler, result))
            )
        clear_frame_locals(result.error)
        return result

    def _timeout_ms(self, message: Message) -> int | None:
        """Return the task's own timeout, or that of the queue's handler."""
        handler = self.handlers.get(message.queue)
        return timeout_ms_of(message) or (None if handler is None else handler.timeout_ms)


def overdue_error(limit_ms: int) -> TimeoutError:
    """Return the error of a delivery that exceeded its handler's timeout."""
    return TimeoutError(f"the handler ran longer than its timeout, {limit_ms / 1000:g} s")


def is_overdue(message: Message, limit_ms: int) -> bool:
    """Return True if the handler exceeded its timeout and has not settled the message."""
    ran_ms = timing.now_ms() - timing.epoch_ms(message.locked_at)
    return message.state == State.LOCKED and ran_ms > limit_ms


def _within_timeout(handler: Handler, limit_ms: int | None) -> Handler:
    """Return a handler that raises TimeoutError if this one exceeds its timeout.

    The error is raised inside the transaction of an atomic handler, which is rolled back.
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
    """Return True if the coroutine was cancelled at its timeout and still has its lease.

    Such a coroutine may catch the cancellation and return. Its lease ends after the grace period.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0 and not message.lease_lost


# The frames of these two functions are in the traceback of the error, so their locals must not
# refer to it: such a cycle would keep all objects in the handler's frames alive.


def _result(handler: Handler, message: Message, using: str) -> DeliveryResult:
    try:
        return delivery_result(message, run_handler(handler, message, using))
    except BaseException as error:  # noqa: BLE001 - SystemExit ends the delivery, not the worker
        return failed(handler, message, error)


async def _handle_async(handler: Handler, message: Message) -> DeliveryResult:
    try:
        returned = await ForkGuard(_call_async(handler, message))
        check_has_run(returned)
        return delivery_result(message, returned)
    except BaseException as error:  # noqa: BLE001 - see _result()
        return failed(handler, message, error)


async def _call_async(handler: Handler, message: Message) -> object:
    return await cast(Awaitable[object], handler.function(message))


async def _wait_for_thread(future: Future[T]) -> T:
    """Wait for the result even if the delivery is cancelled, because its thread is in use."""
    wrapped = asyncio.wrap_future(future)
    while True:
        try:
            return await asyncio.shield(wrapped)
        except asyncio.CancelledError:
            if wrapped.cancelled():
                raise


def clean_up_delivery(handler: Handler, result: DeliveryResult) -> DeliveryResult:
    """Clean up the connections of this thread and return the result of the delivery."""
    clear_frame_locals(result.error)
    rolled_back = clean_up_connections()
    if rolled_back or not handler.atomic:
        sync_state_from_database(result.message)
    if rolled_back and result.error is None:
        # Everything that the handler wrote was rolled back, so the delivery has failed.
        return DeliveryResult(message=result.message, error=TransactionLeftOpen(rolled_back))
    return result


def clear_frame_locals(error: BaseException | None) -> None:
    """Clear the local variables of the frames in the error's traceback.

    Some of them, for example in asgiref and Django's database errors, refer to the error. Such a
    cycle would keep objects of the handler alive, for example a half-read query, until the garbage
    collector runs. Errors are ignored, because clearing a frame can run foreign code.
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

    An error that several deliveries raise has frames of coroutines that are still running, and
    Python before 3.13 would end them. Only a frame that has ended refers to its code object.
    """
    if frame.f_code in gc.get_referents(frame):
        frame.clear()


def failed(handler: Handler, message: Message, error: BaseException) -> DeliveryResult:
    """Return the result of a delivery whose handler raised `error`."""
    return DeliveryResult(message=message, error=error, retries=handler.retries)


def delivery_result(message: Message, returned: object) -> DeliveryResult:
    """Return the result of a delivery whose handler returned `returned`."""
    if isinstance(returned, HandlerResult):
        return DeliveryResult(message=message, error=returned.error, returned=returned.outcome)
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
            # Registered first, so that a hook of the handler that raises runs after it.
            transaction.on_commit(partial(committed.append, True), using=using)
            returned = call(handler, message)
            if message.state == State.LOCKED:
                _settle_as(message, returned)
    except BaseException:
        if not committed:
            message.state = State.LOCKED  # the completion, if any, was rolled back
        raise
    return returned


def _settle_as(message: Message, returned: object) -> None:
    """Complete the message in the handler's transaction; raise the error of a failed task."""
    outcome: Outcome = Completion()
    if isinstance(returned, HandlerResult):
        if returned.error is not None:
            raise returned.error
        outcome = returned.outcome
    if not Message.objects.db_manager(message._state.db).settle(message, outcome):
        raise LockLost(message.queue, message.pk, "complete")


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
    return await ForkGuard(_awaited(result))


async def _awaited(result: Awaitable[object]) -> object:
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

    SQLite connections do not go stale, and reopening one costs more than a message, so they are
    closed only after an error. Other connections follow Django's rule. Errors are logged and never
    raised, because they would end the thread while the lease of its message is renewed forever.
    """
    rolled_back = []
    for connection in connections.all(initialized_only=True):
        try:
            if _is_in_transaction(connection):
                rolled_back.append(connection.alias)
            _clean_up(connection)
        except Exception:
            logger.exception("discarding a broken connection to database %r", connection.alias)
            del connections[connection.alias]
    return rolled_back


def _is_in_transaction(connection: Any) -> bool:
    if connection.vendor != "sqlite" or connection.connection is None:
        return False
    return bool(connection.connection.in_transaction)


def _clean_up(connection: Any) -> None:
    connection.queries_log.clear()  # with DEBUG, Django keeps all queries
    if connection.in_atomic_block:
        _close(connection)
        del connections[connection.alias]  # closed inside a block, it could not be reopened
    elif connection.vendor != "sqlite":
        connection.close_if_unusable_or_obsolete()
    elif connection.errors_occurred or _left_open(connection):
        _close(connection)
    else:
        _end_queries(connection)


def _left_open(connection: Any) -> bool:
    """Return True if the handler left a transaction open or turned autocommit off.

    An open transaction would hold the write lock of the file as long as this thread lives.
    """
    if connection.connection is None:
        return False
    is_autocommit_changed = connection.autocommit != connection.settings_dict["AUTOCOMMIT"]
    return is_autocommit_changed or _is_in_transaction(connection)


def _close(connection: Any) -> None:
    if connection.vendor == "sqlite" and connection.connection is not None:
        connection.connection.rollback()
        _end_queries(connection)  # otherwise SQLite keeps the closed connection open
    connection.close()


def _end_queries(connection: Any) -> None:
    """Close cursors with unread rows. Call this outside a transaction.

    The snapshot of an unfinished query would prevent checkpoints of the WAL and make the next
    write transaction fail.
    """
    if connection.connection is not None and _is_half_read(connection):
        for referrer in gc.get_referrers(connection.connection):
            if isinstance(referrer, connection.Database.Cursor):
                referrer.close()


def _is_half_read(connection: Any) -> bool:
    """Return True if a query has unread rows: SQLite then rejects VACUUM with its own error."""
    try:
        connection.connection.execute("VACUUM INTO 0")
    except connection.Database.Error as error:
        return "in progress" in str(error)
    return False
