"""drain(): handle due messages inline, as a worker would, on the caller's connection."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from django.db.models import Min

from ..exceptions import TransactionLeftOpen, TransactionRefused
from ..handlers import Handler, get_handlers, handler_of, queues_of_kinds
from ..logs import CurrentMessage, current_message
from ..models import Message, Queue
from ..timing import EPOCH, clock_in_use, epoch_ms
from ..transactions import in_callers_transaction
from ..types import State
from ..worker.executor import DeliveryResult, delivery_result, run_handler, sync_state_from_database
from ..worker.reaper import URGENT, run_round
from .connections import worker_connections
from .fake_clock import FakeClock
from .timeouts import with_timeout

RENEWED_LEASE = timedelta(days=365)


class TooManyDeliveries(AssertionError):
    """drain() finds no end: what it runs enqueues more and more."""


def drain(
    *queues: str,
    retries: bool = True,
    raise_errors: bool = False,
    limit: int = 1_000,
    using: str | None = None,
) -> list[Message]:
    """Run handlers and tasks inline until nothing is due; each delivery, its `state` as it ended.

    `queues`: these, the first strictly before the second; by default each that a worker would
    serve. It may be called inside TestCase: everything happens on its connection and within its
    transaction, but a delivery begins in autocommit and ends as a worker would end it. What a
    handler raises fails its message as ever; with `raise_errors` it is raised then as well. A
    handler's timeout fails it too: a coroutine is cancelled, a function fails when it has ended.

    `retries`: what rests after a failure is not waited for but run as well, with the time moved to
    when it is due: that of the FakeClock in use, else of one that lasts as long as the call. What
    was scheduled for later stays where it is: move a FakeClock.

    Raises TooManyDeliveries if more is due after `limit` of them, QueueNotFound,
    TransactionRefused inside atomic(), and ValueError for a `limit` of none.
    """
    if limit < 1:
        raise ValueError(f"drain() makes at least one delivery, so limit is not {limit!r}")
    handlers = get_handlers()
    manager = Message.objects.db_manager(using)
    if in_callers_transaction(manager.database):
        raise TransactionRefused
    for name in queues:
        Queue.objects.db_manager(using).named(name)
    served = queues or _served(handlers, manager.database)
    deliveries: list[Message] = []
    with _fake_clock() as clock:
        while (queue := _next_queue(served, clock, manager.database, retries=retries)) is not None:
            if len(deliveries) == limit:
                raise TooManyDeliveries(
                    f"drain() has made {limit} deliveries, and there is more; the last was of "
                    f"{deliveries[-1]}. Pass a higher limit if that is meant."
                )
            for message in _claim(queue, handlers.get(queue), manager.database):
                deliveries.append(message)
                error = _deliver(message, handlers, manager.database)
                if raise_errors and error is not None:
                    raise error
    return deliveries


def _served(handlers: Mapping[str, Handler], using: str) -> tuple[str, ...]:
    wanted = handlers.keys() | queues_of_kinds()
    there = Queue.objects.using(using).filter(name__in=wanted)
    return tuple(there.order_by("name").values_list("name", flat=True))


@contextmanager
def _fake_clock() -> Iterator[FakeClock]:
    """The FakeClock in use, or one that begins now."""
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
    """The queue of the next message that is due.

    If there is none, the clock is moved to the next retry.
    """
    while True:
        run_round(URGENT, using)
        claimable = Message.objects.db_manager(using).claimable()
        for queue in queues:
            if queue in claimable:
                return queue
        due = _next_retry(queues, using) if retries else None
        if due is None:
            return None
        clock.ms = max(clock.ms, due)


@worker_connections()
def _claim(queue: str, handler: Handler | None, using: str) -> list[Message]:
    """Claim a message, under a lease that outlasts a FakeClock's moves unless it is atomic.

    A worker would renew it, but not during a transaction.
    """
    is_atomic = handler is not None and handler.atomic
    return Message.objects.db_manager(using).claim(
        queue, lock_duration=None if is_atomic else RENEWED_LEASE, worker="drain()"
    )


def _next_retry(queues: Sequence[str], using: str) -> int | None:
    resting = Message.objects.using(using).filter(
        queue__in=queues, state=State.SCHEDULED, delivery_count__gt=0
    )
    due = resting.aggregate(due=Min("visible_at"))["due"]
    return None if due is None else epoch_ms(due)


def _deliver(message: Message, handlers: Mapping[str, Handler], using: str) -> BaseException | None:
    """Run and settle one message; return what its delivery failed of."""
    registered = handlers.get(message.queue)  # its timeout limits the queue's tasks as well
    limit_ms = registered.timeout_ms if registered else None
    handler = with_timeout(handler_of(message, handlers), limit_ms, message)
    with worker_connections() as left_open:
        done = _run(message, handler, using)
    if left_open and done.error is None:
        done = DeliveryResult(message=message, error=TransactionLeftOpen(left_open))
    _settle(done, using)
    return done.error


def _run(message: Message, handler: Handler, using: str) -> DeliveryResult:
    token = current_message.set(CurrentMessage.of(message))
    try:
        return delivery_result(message, run_handler(handler, message, using))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an answer
        return DeliveryResult(message=message, error=error)
    finally:
        current_message.reset(token)


@worker_connections()
def _settle(done: DeliveryResult, using: str) -> None:
    sync_state_from_database(done.message)
    if not done.settled:
        Message.objects.db_manager(using).settle(done.message, done.ending, error=done.error)
