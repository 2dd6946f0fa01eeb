"""The consumer: settles finished deliveries and claims messages for free threads."""

import math
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from django.db import Error, connections

from .. import timing
from ..exceptions import MessageReferenced, QueueNotFound
from ..guard import get_logger
from ..logs import CurrentMessage
from ..models import Message
from ..types import Abandonment, Completion, State
from ..verbs.settle import Settlement
from ..verbs.sweeps import interrupt
from .database_errors import DatabaseErrors
from .executor import DeliveryResult
from .leases import LeaseRenewer
from .options import WorkerOptions
from .pool import Pool
from .reaper import MAX_POLL_INTERVAL, Reaper
from .registry import WorkerEntry
from .shutdown import Shutdown
from .wakeup import Wakeup
from .watchdogs import Memory

logger = get_logger("django_mqlite.worker")

REAP_AFTER_COMMIT = 0.05
"""Maximum seconds between a commit and the next sweep; one sweep serves many commits."""

REAP_DELAY_LIMIT = 0.05
"""Maximum seconds that a sweep which is due may be delayed by claims."""


class Consumer:
    """Claim only as many messages as there are free threads, so that none waits under a lease."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        pool: Pool,
        wakeup: Wakeup,
        shutdown: Shutdown,
        reaper: Reaper | None = None,
        entry: WorkerEntry | None = None,
        renewer: LeaseRenewer | None = None,
    ) -> None:
        self.claimed = 0
        self.on_claimed: Callable[[int], None] = lambda claimed: None
        self._options = options
        self._pool = pool
        self._wakeup = wakeup
        self._shutdown = shutdown
        self._reaper = reaper
        self._entry = entry
        self._renewer = renewer
        self._stall_is_logged = False
        self._memory = Memory(options.max_memory_mb)
        self._reap_at = 0.0
        self._limits_open_at = math.inf
        self._waits_for_limit = False
        self._version = -1
        self._may_have_work = True
        self._database_errors = DatabaseErrors()
        self._unsettled: list[Settlement] = []
        self._idle = False
        self._rotation = 0
        self._deadline = 0.0
        self._messages = Message.objects.db_manager(options.using)

    def run(self) -> None:
        """Work until shutdown is requested, then wait for running handlers.

        Messages whose handlers are still running after the shutdown timeout are released.
        Raises the database's error if it does not recover.
        """
        while not self._done:
            self._wakeup.wait(self.poll())
            connections[
                self._options.using
            ].queries_log.clear()  # with DEBUG, Django keeps all queries
        if awaited := len(self._pool.awaited):
            logger.info("no more claims; waiting for %d running handlers", awaited)
        while self._has_unfinished and (left := self._grace()) > 0:
            self._wakeup.wait(min(left, self.poll(claim=False)))
        if self._has_unfinished:
            self._release_running()

    @property
    def _has_unfinished(self) -> bool:
        return bool(self._pool.awaited or self._unsettled)

    def _grace(self) -> float:
        """Return the seconds left for running handlers, counted from the shutdown request."""
        if not self._shutdown.requested:
            return self._options.shutdown_timeout
        self._deadline = self._deadline or time.monotonic() + self._options.shutdown_timeout
        return self._deadline - time.monotonic()

    @property
    def _done(self) -> bool:
        if self._shutdown.requested or self._quota == 0 or self._memory.exceeded:
            return True
        return self._options.burst and self._idle

    @property
    def started_over_memory_limit(self) -> bool:
        """True if the process exceeded max_memory_mb before it claimed a message."""
        return self._memory.exceeded and self.claimed == 0

    @property
    def _quota(self) -> int | None:
        limit = self._options.max_messages
        return None if limit is None else max(0, limit - self.claimed)

    def poll(self, *, claim: bool = True) -> float:
        """Settle, claim and reap once; return the seconds to wait. Only reads while idle."""
        self._collect()
        try:
            self._notice_commits()
            queues = self._claimable_queues() if claim else []
            if not queues or self._reap_is_overdue:
                self._reap_and_register()
                queues = queues or (self._claimable_queues() if claim else [])
            if self._unsettled or queues:
                self._settle_and_claim(queues)
        except QueueNotFound:
            return 0  # the queue was deleted between the query and the claim
        except Error as error:
            return self._database_errors.failed(error)
        self._database_errors.cleared()
        can_claim = claim and self._free > 0
        waits = self._may_have_work or queues or self._pool.running or self._waits_for_limit
        self._idle = not waits
        if self._may_have_work and can_claim:
            return 0
        until_reap = self._reap_at - time.monotonic() if self._reaper else MAX_POLL_INTERVAL
        until_limit = self._limits_open_at - time.monotonic() if can_claim else MAX_POLL_INTERVAL
        return max(0, min(self._wakeup.poll_interval, until_reap, until_limit))

    def _notice_commits(self) -> None:
        """Query again after a commit, which may have added a message or an earlier schedule."""
        version = self._messages.data_version()
        if version != self._version:
            self._version = version
            self._may_have_work = True
            self._reap_soon()

    def _reap_and_register(self) -> None:
        """Run the due sweeps and refresh the worker's entry.

        Nothing is written right after handlers have started: a handler that holds the interpreter
        would delay the transaction, and with it every other writer.
        """
        self._reap()
        if self._entry is not None:
            self._entry.refresh(in_flight=len(self._pool.running))

    @property
    def _reap_is_overdue(self) -> bool:
        """True if claims have delayed the due sweep for too long."""
        return time.monotonic() >= self._reap_at + REAP_DELAY_LIMIT

    def _reap_soon(self) -> None:
        self._reap_at = min(self._reap_at, time.monotonic() + REAP_AFTER_COMMIT)

    def _reap(self) -> None:
        if self._reaper is not None and time.monotonic() >= self._reap_at:
            self._may_have_work = True
            self._reap_at = time.monotonic() + self._reaper.poll()

    def _collect(self) -> None:
        """Take the finished deliveries; settlements stay queued until they are written."""
        for finished in self._pool.take_finished():
            if not finished.settled:
                self._unsettled.append(_settlement(finished))
                continue
            self._count(finished.message)
            if finished.error is not None:
                _log_failed_after_settle(finished.message, finished.error)

    def _count(self, message: Message) -> None:
        if self._entry is not None:
            self._entry.count(message)

    def _claimable_queues(self) -> list[str]:
        """Return the served queues with claimable messages, in order; empty if nothing changed.

        A queue that has reached a limit is not among them. It is checked again after a commit, such
        as a settle by another worker, or once the limit has a token or a lease has expired.
        """
        is_due = self._may_have_work or time.monotonic() >= self._limits_open_at
        if not is_due or self._free == 0:
            return []
        limits = self._messages.claimable_limits()
        waits = {
            queue: limits[queue].opens_at - timing.now_ms()
            for queue in self._queues_in_order()
            if queue in limits
        }
        queues = [queue for queue, wait in waits.items() if wait <= 0]
        self._may_have_work = bool(queues)
        self._wait_for_limits([wait for wait in waits.values() if wait > 0])
        return queues

    def _wait_for_limits(self, waits_ms: list[int]) -> None:
        """Check limited queues again after the shortest wait, and each second for clock changes."""
        self._waits_for_limit = bool(waits_ms)
        seconds = min(min(waits_ms) / 1_000, MAX_POLL_INTERVAL) if waits_ms else math.inf
        self._limits_open_at = time.monotonic() + seconds

    def _queues_in_order(self) -> Sequence[str]:
        queues = self._options.queues
        if not self._options.round_robin:
            return queues
        self._rotation = (self._rotation + 1) % len(queues)
        return (*queues[self._rotation :], *queues[: self._rotation])

    @property
    def _free(self) -> int:
        quota = self._quota
        return self._pool.free if quota is None else min(self._pool.free, quota)

    def _settle_and_claim(self, queues: list[str]) -> None:
        at_least_ms = 0 if self._renewer is None else self._renewer.minimum_lease_ms
        try:
            held, messages = self._messages.settle_and_claim(
                self._unsettled,
                queues,
                limit=self._free,
                worker=self._options.name,
                at_least_ms=at_least_ms,
            )
        except MessageReferenced:
            self._settle_singly()
            return
        for settlement, is_held in zip(self._unsettled, held, strict=True):
            if not is_held:
                _log_lost_lease(settlement.message)
                continue
            if settlement.counts:
                self._count(settlement.message)
            if not isinstance(settlement.outcome, Completion):
                self._reap_soon()  # the retry may be due before the next sweep
        self._unsettled = []
        self._may_have_work = True  # settling the head of a group makes the next message claimable
        self.claimed += len(messages)
        self.on_claimed(self.claimed)
        self._log_stall(messages, at_least_ms)
        for message in messages:
            self._pool.start(message)

    def _log_stall(self, messages: Sequence[Message], at_least_ms: int) -> None:
        """Log once that and why leases are longer than the lock_duration of their queue."""
        extended = timedelta(milliseconds=at_least_ms)
        if self._stall_is_logged or self._renewer is None or not extended:
            return
        if any(message.locked_until - message.locked_at == extended for message in messages):
            self._stall_is_logged = True
            logger.warning(
                "no lease was renewed for %.1f s, because a handler held the interpreter or a "
                "transaction held the database; the minimum lease of this worker is now %.1f s. "
                "Run such handlers with --processes, or give their queue a longer lock_duration",
                self._renewer.longest_stall,
                at_least_ms / 1_000,
            )

    def _settle_singly(self) -> None:
        """Settle the messages singly, because a foreign key of the project refers to one of them.

        The referenced message cannot be deleted and must not block the others. Its lease expires,
        and it becomes a dead letter at its delivery limit.
        """
        settlements, self._unsettled = self._unsettled, []
        for settlement in settlements:
            try:
                self._messages.settle(
                    settlement.message, settlement.outcome, error=settlement.error
                )
            except MessageReferenced as error:
                message = settlement.message
                logger.exception(
                    "message #%s of %s cannot be settled: %s", message.pk, message.queue, error
                )

    def _release_running(self) -> None:
        """Make the messages of running handlers claimable at once.

        These deliveries are not counted, except those of handlers that lost their lease because
        they exceeded their timeout.
        """
        self._collect()
        running = [message for message in self._pool.running if message.state == State.LOCKED]
        self._unsettled += [
            Settlement(
                message=message,
                outcome=Abandonment(delay_ms=0),
                error="the handler lost its lease and was still running when the worker stopped",
            )
            for message in running
            if message.lease_lost
        ]
        self._settle_and_claim([])
        self._interrupt([message for message in running if not message.lease_lost])

    def _interrupt(self, messages: Sequence[Message]) -> None:
        leases = [lease for message in messages if (lease := message.lease) is not None]
        reason = "the handler was still running when the worker stopped"
        released_ids = interrupt(self._options.using, leases, reason=reason)
        for message in messages:
            if message.pk in released_ids:
                message.state = State.ACTIVE
            else:
                _log_lost_lease(message)


def _settlement(finished: DeliveryResult) -> Settlement:
    return Settlement(
        message=finished.message,
        outcome=finished.outcome,
        error=finished.error,
        details=finished.details,
    )


def _log_lost_lease(message: Message) -> None:
    logger.warning(
        "the lease of message #%s of %s was lost while its handler ran; its outcome is ignored",
        message.pk,
        message.queue,
        extra=CurrentMessage.of(message)._asdict(),
    )


def _log_failed_after_settle(message: Message, error: BaseException) -> None:
    logger.error(
        "the handler of message #%s of %s failed after settling the message; it remains settled",
        message.pk,
        message.queue,
        exc_info=error,
        extra=CurrentMessage.of(message)._asdict(),
    )
