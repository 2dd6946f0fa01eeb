"""Renewal of running handlers' leases, at a third of their duration."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Thread

from django.db import Error, connections

from .. import timing
from ..exceptions import LockLost
from ..guard import get_logger
from ..handlers import Handler
from ..logs import CurrentMessage
from ..models import Message
from ..timing import EPOCH, epoch_ms
from ..types import Lease, State
from ..verbs.workers import HeldLease, held_leases
from .database_errors import advice
from .executor import overdue_error
from .pool import Pool
from .shutdown import Shutdown

LONGEST_RENEWAL_INTERVAL = 1.0
"""Seconds; less where leases are short."""


class SupervisedLeases:
    """A child renews at a third of the lease; what has less than a third left is renewed here."""

    def __init__(self, using: str, handlers: Mapping[str, Handler]) -> None:
        self.rest = LONGEST_RENEWAL_INTERVAL
        self._using = using
        self._handlers = handlers

    def renew(self, workers: Sequence[str]) -> set[str]:
        """Renew what is about to run out; the workers that run a handler beyond its timeout.

        A coroutine has some time more, in which its own process cancels it. A read where nothing is
        to be done. Asked so often that a third of the shortest lease is enough.
        """
        held = held_leases(self._using, workers)
        late = [lease.lease for lease in held if lease.is_late and not self._is_overdue(lease)]
        if late:
            Message.objects.db_manager(self._using).renew_leases(late)
        shortest = min((lease.lock_duration_ms for lease in held), default=6_000)
        self.rest = min(LONGEST_RENEWAL_INTERVAL, shortest / 6_000)
        return {lease.worker for lease in held if self._is_overdue(lease, grace=True)}

    def within_timeout(self, worker: str) -> list[Lease]:
        """The leases of a worker whose handlers have not had their time."""
        held = held_leases(self._using, [worker])
        return [lease.lease for lease in held if not self._is_overdue(lease)]

    def _is_overdue(self, lease: HeldLease, *, grace: bool = False) -> bool:
        handler = self._handlers.get(lease.lease.queue)
        if handler is None or handler.timeout_ms is None:
            return False
        more = CANCEL_GRACE_MS if grace and handler.is_async else 0
        return lease.ran_ms > handler.timeout_ms + more


logger = get_logger("django_mqlite.worker")

LONGEST_CHECK_INTERVAL = 0.1
"""Seconds until a new message is noticed: a third of the shortest lease that can be kept."""

SHORTEST_REST = 0.01

IDLE_REST = 1.0
"""Seconds; a message that is started ends it."""


CANCEL_GRACE_MS = 5_000
"""A coroutine beyond its timeout is cancelled; one that still runs then blocks its loop."""

LEASE_PER_STALL = 3
"""A lease lasts this many times the longest stall, so that it can be renewed after one."""

LONGEST_EXTENSION_MS = 10 * 60_000
"""A machine that slept for a day is no reason for leases of days."""


class LeaseRenewer:
    """Renews from a thread and a connection of its own: a busy consumer cannot starve it."""

    def __init__(
        self,
        using: str,
        pool: Pool,
        *,
        timeout_ms: Mapping[str, int] | None = None,
        on_stuck: Callable[[Message], None] | None = None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        """`timeout_ms` by queue; `on_stuck` hears of a thread that has had its time.

        `on_failed` is called if the renewer cannot go on: a worker without one must not either.
        """
        self._using = using
        self._pool = pool
        self._timeout_ms = timeout_ms or {}
        self._on_stuck = on_stuck
        self._on_failed = on_failed
        self._ended = Shutdown()
        self._lost: set[str | None] = set()
        self._renewed: dict[str | None, datetime] = {}
        self._failing = False
        self._due = time.monotonic()
        self._longest_stall = 0.0
        self._thread = Thread(target=self._run, name="mqlite-lease-keeper", daemon=True)

    @property
    def longest_stall(self) -> float:
        """Seconds by which renewing leases was late at most."""
        return self._longest_stall

    @property
    def least_lease_ms(self) -> int:
        """Return the shortest lease, in ms, that the longest stall so far would not end."""
        return min(round(self._longest_stall * 1_000 * LEASE_PER_STALL), LONGEST_EXTENSION_MS)

    def start(self) -> None:
        self._due = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End after the last handler: while they drain they keep their leases."""
        self._ended.request()
        self._pool.busy.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._ended.wait(self.poll()):
                connections[self._using].queries_log.clear()  # with DEBUG Django remembers them
                self._wait_while_idle()
        except BaseException:
            logger.exception("no lease is renewed any more, so the worker ends")
            self._on_failed()
        finally:
            connections.close_all()

    def _wait_while_idle(self) -> None:
        self._pool.busy.clear()  # before looking, so that nothing that starts later is missed
        if not (self._pool.running or self._ended.requested):
            woken = self._pool.busy.wait(IDLE_REST)
            self._due = self._pool.busy_since if woken else time.monotonic()

    def poll(self) -> float:
        """Renew what has used up a third of its lease, all in one statement; how long to rest."""
        self._forget_ended()
        self._end_overdue()
        try:
            self._renew([message for message in self._held() if self._renew_in(message) <= 0])
        except Error as error:
            if not self._failing:
                logger.error("leases were not renewed: %s (%s); trying on", error, advice(error))
            self._failing = True
            return LONGEST_CHECK_INTERVAL
        self._failing = False
        self._longest_stall = max(self._longest_stall, time.monotonic() - self._due)
        rests = [self._renew_in(message) for message in self._held()]
        rest = max(SHORTEST_REST, min([LONGEST_CHECK_INTERVAL, *rests]))
        self._due = time.monotonic() + rest
        return rest

    def _forget_ended(self) -> None:
        running = {message.claimed_token for message in self._pool.running}
        self._lost &= running
        self._renewed = {token: at for token, at in self._renewed.items() if token in running}

    def _end_overdue(self) -> None:
        """A handler beyond its timeout keeps no lease: cancelled if it can be, else told."""
        for message in self._pool.running:
            limit = self._timeout_ms.get(message.queue)
            if limit is None or message.state != State.LOCKED or message.lease_lost:
                continue
            over = timing.now_ms() - epoch_ms(message.locked_at) - limit
            if over > 0:
                self._end(message, limit, over)

    def _end(self, message: Message, limit: int, over: int) -> None:
        overdue = overdue_error(limit)
        if message.claimed_token in self._lost:
            if over > CANCEL_GRACE_MS:
                self._report_stuck(message, f"{overdue}; it was cancelled and does not end")
        elif self._pool.cancel(message, overdue):
            self._lost.add(message.claimed_token)
        else:
            self._report_stuck(message, f"{overdue}; a thread cannot be stopped")

    def _report_stuck(self, message: Message, why: str) -> None:
        self._mark_lost(message, why)
        if self._on_stuck is not None:
            self._on_stuck(message)

    def _held(self) -> list[Message]:
        return [
            message
            for message in self._pool.running
            if message.state == State.LOCKED and message.claimed_token not in self._lost
        ]

    def _renew_in(self, message: Message) -> float:
        """Seconds until a third of the lease has passed."""
        since = self._renewed.get(message.claimed_token, message.locked_at)
        third: timedelta = (message.locked_until - since) / 3
        left: timedelta = since + third - _now()
        return left.total_seconds()

    def _renew(self, due: list[Message]) -> None:
        if not due:
            return
        kept = Message.objects.db_manager(self._using).renew_many(
            due, at_least_ms=self.least_lease_ms
        )
        now = _now()
        for message, held in zip(due, kept, strict=True):
            if held:
                self._renewed[message.claimed_token] = now
            elif message.state == State.LOCKED:  # or it has been settled in the meantime
                self._mark_lost(message, "somebody else may have it by now")
                self._pool.cancel(message, LockLost(message.queue, message.pk, "keep"))

    def _mark_lost(self, message: Message, why: str) -> None:
        self._lost.add(message.claimed_token)
        message.lease_lost = True
        logger.warning(
            "the lease of message #%s of %s is lost (%s); its handler's outcome will not count",
            message.pk,
            message.queue,
            why,
            extra=CurrentMessage.of(message)._asdict(),
        )


def _now() -> datetime:
    return EPOCH + timedelta(milliseconds=timing.now_ms())
