"""Inline delivery: drain() handles due messages as a worker would, on the caller's connection."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta

from django.db.models import Min, Q

from ..arguments import checked_integer
from ..exceptions import TransactionLeftOpen, TransactionRefused
from ..handlers import Handler, get_handlers, handler_of, queues_of_kinds
from ..logs import CurrentMessage, current_message
from ..message import timeout_ms_of
from ..models import Message, Queue
from ..recurring import all_schedules
from ..schedules import Schedule
from ..timing import EPOCH, clock_in_use, epoch_ms
from ..tracing import delivery_span
from ..transactions import in_callers_transaction
from ..types import State
from ..worker.dispatcher import Dispatcher
from ..worker.executor import (
    DeliveryResult,
    delivery_result,
    failed,
    run_handler,
    sync_state_from_database,
)
from ..worker.reaper import URGENT, run_round
from .connections import worker_connections
from .fake_clock import FakeClock
from .timeouts import with_timeout

LONG_LEASE = timedelta(days=365)


class TooManyDeliveries(AssertionError):
    """drain() reached its limit: handlers may enqueue messages without end."""


def drain(
    *queues: str,
    retries: bool = True,
    raise_errors: bool = False,
    limit: int = 1_000,
    using: str | None = None,
    schedules: bool = False,
) -> list[Message]:
    """Run handlers and tasks inline until no message is due; return the delivered messages.

    A message that is delivered again is returned again, each time with the `state` in which that
    delivery ended. `queues` are drained in strict order; by default, these are the queues that a
    worker would serve. Inside a TestCase everything runs on its connection and in its transaction,
    but each delivery starts in autocommit and is settled as in a worker. An error in a handler
    fails its message; with `raise_errors` it is also raised. A timeout fails the message too: a
    coroutine is cancelled, a function fails after it has ended.

    With `retries`, failed messages are retried without waiting: the FakeClock in use is moved to
    the time of the retry, or a FakeClock that lasts for this call. Messages that were scheduled for
    later are not delivered; move a FakeClock to deliver them.

    The limits of a queue apply. With `retries`, the clock is also moved to the next token of a
    `rate`; without, the messages above the rate are left. Messages that wait because the caller
    holds `max_in_flight` leases are left.

    With `schedules`, the due ticks of recurring schedules are enqueued as well. A schedule starts
    with its next tick after the first such call, as it does with the first worker. Move a FakeClock
    to reach the tick.

    Raises TooManyDeliveries if messages are due after `limit` deliveries, QueueNotFound,
    TransactionRefused inside atomic(), and ValueError for a `limit` below 1. A handler may call
    drain() itself: its own message is locked, and others are delivered.
    """
    limit = checked_integer(limit, "limit")
    handlers = get_handlers()
    manager = Message.objects.db_manager(using)
    if in_callers_transaction(manager.database):
        raise TransactionRefused
    for name in queues:
        Queue.objects.db_manager(using).named(name)
    served_queues = queues or _served_queues(handlers, manager.database)
    deliveries: list[Message] = []
    with _fake_clock() as clock:
        _dispatch(all_schedules() if schedules else {}, manager.database)
        while (
            queue := _next_queue(served_queues, clock, manager.database, retries=retries)
        ) is not None:
            if len(deliveries) == limit:
                raise TooManyDeliveries(
                    f"drain() stopped after {limit} deliveries with more messages due; the last "
                    f"was {deliveries[-1]}. Pass a higher limit if this is expected."
                )
            for message in _claim(queue, handlers.get(queue), manager.database):
                deliveries.append(message)
                error = _deliver(message, handlers, manager.database)
                if raise_errors and error is not None:
                    raise error
    return deliveries


def _served_queues(handlers: Mapping[str, Handler], using: str) -> tuple[str, ...]:
    names = handlers.keys() | queues_of_kinds()
    queues = Queue.objects.using(using).filter(name__in=names)
    return tuple(queues.order_by("name").values_list("name", flat=True))


@worker_connections()
def _dispatch(schedules: Mapping[str, Schedule], using: str) -> None:
    if schedules:
        Dispatcher(using, schedules).poll()


@contextmanager
def _fake_clock() -> Iterator[FakeClock]:
    """Yield the FakeClock in use, or a new one that starts now."""
    clock = clock_in_use()
    if isinstance(clock, FakeClock):
        yield clock
        return
    fake = FakeClock(EPOCH)
    fake.ms = clock.now_ms()
    with fake:
        yield fake


@worker_connections()
def _next_queue(
    queues: Sequence[str], clock: FakeClock, using: str, *, retries: bool
) -> str | None:
    """Return the queue of the next due message, or None.

    If no message can be delivered, move the clock to the next retry or the next token of a rate.
    """
    while True:
        run_round(URGENT, using)
        limits = Message.objects.db_manager(using).claimable_limits()
        waiting = {queue: limits[queue] for queue in queues if queue in limits}
        for queue, limit in waiting.items():
            if limit.opens_at <= clock.ms:
                return queue
        # A lease is not waited for: only the caller or an outer drain() can hold it.
        due = [limit.opens_at for limit in waiting.values() if limit.free_leases > 0]
        if (retry := _next_retry(queues, using)) is not None:
            due.append(retry)
        if not (retries and due):
            return None
        clock.ms = max(clock.ms, min(due))


@worker_connections()
def _claim(queue: str, handler: Handler | None, using: str) -> list[Message]:
    """Claim a message with a lease that outlasts the moves of a FakeClock.

    A worker would renew the lease. It could not renew it during the transaction of an atomic
    handler, whose message gets the lock duration of its queue.
    """
    is_atomic = handler is not None and handler.atomic
    return Message.objects.db_manager(using).claim(
        queue, lock_duration=None if is_atomic else LONG_LEASE, worker="drain()"
    )


def _next_retry(queues: Sequence[str], using: str) -> int | None:
    was_delivered = Q(delivery_count__gt=0) | Q(uncounted_retries__gt=0)
    retries = Message.objects.using(using).filter(
        was_delivered, queue__in=queues, state=State.SCHEDULED
    )
    due = retries.aggregate(due=Min("visible_at"))["due"]
    return None if due is None else epoch_ms(due)


def _deliver(message: Message, handlers: Mapping[str, Handler], using: str) -> BaseException | None:
    """Run and settle one message; return the error of a failed delivery."""
    registered = handlers.get(message.queue)  # its timeout limits tasks that have none
    limit_ms = timeout_ms_of(message) or (registered.timeout_ms if registered else None)
    handler = with_timeout(handler_of(message, handlers), limit_ms, message)
    with worker_connections() as left_open:
        # In a context of its own, so that the next delivery does not see its language, for example.
        result = copy_context().run(_run, message, handler, using)
    if left_open and result.error is None:
        result = DeliveryResult(message=message, error=TransactionLeftOpen(left_open))
    _settle(result, using)
    return result.error


def _run(message: Message, handler: Handler, using: str) -> DeliveryResult:
    current_message.set(CurrentMessage.of(message))
    with delivery_span(message) as finish:
        result = _result(message, handler, using)
        finish(result.error)
    return result


def _result(message: Message, handler: Handler, using: str) -> DeliveryResult:
    try:
        return delivery_result(message, run_handler(handler, message, using))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - every error fails the message
        return failed(handler, message, error)


@worker_connections()
def _settle(result: DeliveryResult, using: str) -> None:
    message, messages = result.message, Message.objects.db_manager(using)
    sync_state_from_database(message)
    if not result.settled and not messages.settle(message, result.outcome, error=result.error):
        # The lease has ended: the message was discarded or released, for example.
        states = messages.using(using).filter(pk=message.pk).values_list("state", flat=True)
        message.state = states.first() or message.state
