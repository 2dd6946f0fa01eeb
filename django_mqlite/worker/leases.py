"""Renewal of running handlers' leases, at a third of their duration, and notice of their end."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Thread

from django.db import Error, connections

from .. import timing
from ..exceptions import Discarded, LockLost
from ..guard import get_logger
from ..handlers import Handler
from ..logs import CurrentMessage
from ..message import timeout_ms_of
from ..models import Message
from ..timing import EPOCH, epoch_ms
from ..types import Lease, State
from ..verbs.workers import HeldLease, ended_leases, held_leases
from .database_errors import advice
from .executor import overdue_error
from .pool import Pool
from .shutdown import Shutdown

MAX_SUPERVISED_INTERVAL = 1.0
"""Maximum seconds between two checks by the supervisor; short leases are checked more often."""


class SupervisedLeases:
    """Renew leases that the children of a supervisor failed to renew in time.

    A child renews a lease when a third of it has passed; the supervisor, when a third is left.
    """

    def __init__(self, using: str, handlers: Mapping[str, Handler]) -> None:
        self.check_interval = MAX_SUPERVISED_INTERVAL
        self._using = using
        self._handlers = handlers

    def renew(self, workers: Sequence[str]) -> set[str]:
        """Renew leases that expire soon; return the workers with a handler over its timeout.

        A handler has a grace period, in which its own process cancels its coroutine or marks its
        lease as lost. Its lease is renewed until the end of this period, so that the message is not
        delivered again beside it. Only reads if no lease expires soon. `check_interval` is short
        enough for a third of the shortest lease.
        """
        held = held_leases(self._using, workers)
        late = [
            lease.lease
            for lease in held
            if lease.is_late and not self._is_overdue(lease, CANCEL_GRACE_MS)
        ]
        if late:
            Message.objects.db_manager(self._using).renew_leases(late)
        shortest = min((lease.lock_duration_ms for lease in held), default=6_000)
        self.check_interval = min(MAX_SUPERVISED_INTERVAL, shortest / 6_000)
        return {lease.worker for lease in held if self._is_overdue(lease, CANCEL_GRACE_MS)}

    def within_timeout(self, worker: str) -> list[Lease]:
        """Return the leases of a worker whose handlers have not exceeded their timeout."""
        held = held_leases(self._using, [worker])
        return [lease.lease for lease in held if not self._is_overdue(lease)]

    def _is_overdue(self, lease: HeldLease, grace_ms: int = 0) -> bool:
        handler = self._handlers.get(lease.lease.queue)
        limit_ms = lease.timeout_ms or (None if handler is None else handler.timeout_ms)
        return limit_ms is not None and lease.ran_ms > limit_ms + grace_ms


logger = get_logger("django_mqlite.worker")

MAX_CHECK_INTERVAL = 0.1
"""Maximum seconds until a new message is checked: a third of the shortest renewable lease."""

MIN_CHECK_INTERVAL = 0.01

IDLE_CHECK_INTERVAL = 1.0
"""Seconds between two checks while no handler runs; starting a message ends the wait."""

CANCEL_GRACE_MS = 5_000
"""Milliseconds that a handler has to end after its timeout, or after its message was discarded.

After that time, a coroutine that was cancelled is reported as stuck, and a supervised process is
killed."""

LEASE_PER_STALL = 3
"""Minimum lease as a multiple of the longest stall, so that it can be renewed after one."""

MAX_MINIMUM_LEASE_MS = 10 * 60_000
"""Upper limit of the minimum lease: a suspended machine must not cause day-long leases."""


class LeaseRenewer:
    """Renew leases in a separate thread with its own connection, so that no consumer delays it."""

    def __init__(
        self,
        using: str,
        pool: Pool,
        *,
        timeout_ms: Mapping[str, int] | None = None,
        on_stuck: Callable[[Message], None] | None = None,
        on_discarded: Callable[[Message], None] | None = None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a renewer; `timeout_ms` maps queue names to timeouts.

        `on_stuck` is called with a message whose handler exceeded its timeout and cannot be
        cancelled; `on_discarded`, with a message whose handler has not ended CANCEL_GRACE_MS after
        the message was discarded; `on_failed` is called if renewal fails permanently, so the
        worker must end.
        """
        self._using = using
        self._pool = pool
        self._timeout_ms = timeout_ms or {}
        self._on_stuck = on_stuck
        self._on_discarded = on_discarded
        self._on_failed = on_failed
        self._shutdown = Shutdown()
        self._lost: set[str | None] = set()
        self._renewed: dict[str | None, datetime] = {}
        self._discarded: dict[str | None, float] = {}
        """The monotonic times by which handlers of discarded messages have to end, by token."""
        self._version: int | None = None
        self._failing = False
        self._due = time.monotonic()
        self._longest_stall = 0.0
        self._thread = Thread(target=self._run, name="mqlite-lease-renewer", daemon=True)

    @property
    def longest_stall(self) -> float:
        """The longest delay of a renewal so far, in seconds."""
        return self._longest_stall

    @property
    def minimum_lease_ms(self) -> int:
        """The shortest lease, in ms, that would survive the longest stall so far."""
        return min(round(self._longest_stall * 1_000 * LEASE_PER_STALL), MAX_MINIMUM_LEASE_MS)

    def start(self) -> None:
        self._due = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing. Call this after the last handler has ended."""
        self._shutdown.request()
        self._pool.busy.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._shutdown.wait(self.poll()):
                connections[self._using].queries_log.clear()  # with DEBUG, Django keeps all queries
                self._wait_while_idle()
        except BaseException:
            logger.exception("lease renewal failed; the worker is shutting down")
            self._on_failed()
        finally:
            connections.close_all()

    def _wait_while_idle(self) -> None:
        self._pool.busy.clear()  # before the check, so that a message started after it is noticed
        if not (self._pool.running or self._shutdown.requested):
            woken = self._pool.busy.wait(IDLE_CHECK_INTERVAL)
            self._due = self._pool.busy_since if woken else time.monotonic()

    def poll(self) -> float:
        """Notice ended leases and renew others, one statement each; return seconds to wait.

        Leases are renewed once a third of them has passed.
        """
        self._forget_ended()
        self._end_overdue()
        self._report_discarded()
        try:
            self._notice_ended_leases()
            self._renew(
                [message for message in self._running_under_lease() if self._renew_in(message) <= 0]
            )
        except Error as error:
            if not self._failing:
                logger.error("could not renew leases: %s (%s); retrying", error, advice(error))
            self._failing = True
            self._version = None  # a new connection counts from another number
            return MAX_CHECK_INTERVAL
        self._failing = False
        self._longest_stall = max(self._longest_stall, time.monotonic() - self._due)
        next_renewals = [self._renew_in(message) for message in self._running_under_lease()]
        seconds = max(MIN_CHECK_INTERVAL, min([MAX_CHECK_INTERVAL, *next_renewals]))
        self._due = time.monotonic() + seconds
        return seconds

    def _forget_ended(self) -> None:
        running = {message.claimed_token for message in self._pool.running}
        self._lost &= running
        self._renewed = {token: at for token, at in self._renewed.items() if token in running}
        self._discarded = {token: at for token, at in self._discarded.items() if token in running}

    def _end_overdue(self) -> None:
        """Cancel handlers that exceeded their timeout, or mark their leases as lost."""
        for message in self._pool.running:
            limit = timeout_ms_of(message) or self._timeout_ms.get(message.queue)
            if limit is None or message.state != State.LOCKED or message.lease_lost:
                continue
            excess_ms = timing.now_ms() - epoch_ms(message.locked_at) - limit
            if excess_ms > 0:
                self._end(message, limit, excess_ms)

    def _end(self, message: Message, limit: int, excess_ms: int) -> None:
        error = overdue_error(limit)
        if message.claimed_token in self._lost:
            if excess_ms > CANCEL_GRACE_MS:
                self._report_stuck(message, f"{error}; it was cancelled but has not ended")
        elif self._pool.cancel(message, error):
            self._lost.add(message.claimed_token)
        else:
            self._report_stuck(message, f"{error}; a thread cannot be cancelled")

    def _report_stuck(self, message: Message, reason: str) -> None:
        self._mark_lost(message, reason)
        if self._on_stuck is not None:
            self._on_stuck(message)

    def _notice_ended_leases(self) -> None:
        """Tell the handlers whose leases an operator or a reaper has ended.

        Reads all leases at once, and only if another connection has committed since the last time.
        """
        held = self._running_under_lease()
        if not held:
            return
        version = Message.objects.db_manager(self._using).data_version()
        if version == self._version:
            return
        self._version = version
        ended = ended_leases(self._using, [lease for message in held if (lease := message.lease)])
        for message in held:
            # The state is set before a settle is committed.
            if message.claimed_token in ended and message.state == State.LOCKED:
                self._end_lost(message, discarded=ended[message.claimed_token])

    def _end_lost(self, message: Message, *, discarded: bool) -> None:
        if discarded:
            grace_ends_at = time.monotonic() + CANCEL_GRACE_MS / 1_000
            self._discarded[message.claimed_token] = grace_ends_at
            self._mark_lost(message, "it was discarded")
            self._pool.cancel(message, Discarded(f"message #{message.pk} was discarded"))
        else:
            self._mark_lost(message, "it expired or was released")
            self._pool.cancel(message, LockLost(message.queue, message.pk, "renew"))

    def _report_discarded(self) -> None:
        """Report handlers of discarded messages that have not ended in time, each once."""
        if self._on_discarded is None:
            return
        for message in self._pool.running:
            if self._discarded.get(message.claimed_token, math.inf) <= time.monotonic():
                self._discarded[message.claimed_token] = math.inf
                self._on_discarded(message)

    def _running_under_lease(self) -> list[Message]:
        return [
            message
            for message in self._pool.running
            if message.state == State.LOCKED and message.claimed_token not in self._lost
        ]

    def _renew_in(self, message: Message) -> float:
        """Return the seconds until a third of the lease has passed."""
        since = self._renewed.get(message.claimed_token, message.locked_at)
        third: timedelta = (message.locked_until - since) / 3
        remaining: timedelta = since + third - _now()
        return remaining.total_seconds()

    def _renew(self, due: list[Message]) -> None:
        if not due:
            return
        renewed = Message.objects.db_manager(self._using).renew_many(
            due, at_least_ms=self.minimum_lease_ms
        )
        now = _now()
        for message, is_renewed in zip(due, renewed, strict=True):
            if is_renewed:
                self._renewed[message.claimed_token] = now
            elif message.state == State.LOCKED:  # otherwise it was settled in the meantime
                self._end_lost(message, discarded=False)

    def _mark_lost(self, message: Message, reason: str) -> None:
        self._lost.add(message.claimed_token)
        message.lease_lost = True
        logger.warning(
            "the lease of message #%s of %s is lost (%s); its handler's outcome will be ignored",
            message.pk,
            message.queue,
            reason,
            extra=CurrentMessage.of(message)._asdict(),
        )


def _now() -> datetime:
    return EPOCH + timedelta(milliseconds=timing.now_ms())
