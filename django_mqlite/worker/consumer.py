"""The one writer of a worker process: settles what has finished, claims for the free threads."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from django.db import Error, IntegrityError, connections

from ..exceptions import QueueNotFound
from ..guard import get_logger
from ..models import Message
from ..types import Abandonment, Completion, State
from ..verbs.settle import Settlement
from ..verbs.sweeps import interrupt
from .database_errors import DatabaseErrors
from .executor import Finished
from .leases import LeaseRenewer
from .options import WorkerOptions
from .pool import Pool
from .reaper import LONGEST_POLL, Reaper
from .registry import Entry
from .shutdown import Shutdown
from .wakeup import Wakeup
from .watchdogs import Memory, Parent

logger = get_logger("django_mqlite.worker")

REAP_SOON = 0.05
"""Seconds within which a new schedule is looked for after a commit; not after each one."""

LATEST = 0.05
"""Seconds that messages which wait for a free thread may go before what is due elsewhere."""


class Consumer:
    """Claims only for free threads, so that nothing waits under a lease it does not use."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        pool: Pool,
        wakeup: Wakeup,
        stop: Shutdown,
        reaper: Reaper | None = None,
        entry: Entry | None = None,
        keeper: LeaseRenewer | None = None,
    ) -> None:
        self.claimed = 0
        self.on_claimed: Callable[[int], None] = lambda count: None
        self._options = options
        self._pool = pool
        self._wakeup = wakeup
        self._stop = stop
        self._reaper = reaper
        self._entry = entry
        self._keeper = keeper
        self._is_stall_told = False
        self._parent = None if options.supervised else Parent()
        self._memory = Memory(options.max_memory_mb)
        self._reap_at = 0.0
        self._version = -1
        self._look = True
        self._faults = DatabaseErrors()
        self._unsettled: list[Settlement] = []
        self._idle = False
        self._turn = 0
        self._deadline = 0.0
        self._messages = Message.objects.db_manager(options.using)

    def run(self) -> None:
        """Work until asked to stop, then drain; give back what still runs when its time is over.

        Raises what the database failed with when there is no more hope.
        """
        while not self._done:
            self._wakeup.wait(self.poll())
            connections[self._options.using].queries_log.clear()  # with DEBUG Django remembers them
        if self._pool.running:
            logger.info("no more claims; %d handlers still run", len(self._pool.running))
        while self._open and (left := self._grace()) > 0:
            self._wakeup.wait(min(left, self.poll(claim=False)))
        if self._open:
            self._give_back_running()

    @property
    def _open(self) -> bool:
        return bool(self._pool.running or self._unsettled)

    def _grace(self) -> float:
        """Seconds that running handlers still have; they are counted from the wish to stop."""
        if not self._stop.requested:
            return self._options.shutdown_timeout
        self._deadline = self._deadline or time.monotonic() + self._options.shutdown_timeout
        return self._deadline - time.monotonic()

    @property
    def _done(self) -> bool:
        if self._parent is not None and self._parent.gone:
            logger.warning(
                "the process that started this worker is gone; draining (nohup, setsid or a "
                "process manager keep a worker without one)"
            )
            self._stop.request()
        if self._stop.requested or self._quota == 0 or self._memory.exceeded:
            return True
        return self._options.burst and self._idle

    @property
    def had_no_room(self) -> bool:
        """Whether max_memory_mb is less than the process needs to begin with."""
        return self._memory.exceeded and self.claimed == 0

    @property
    def _quota(self) -> int | None:
        limit = self._options.max_messages
        return None if limit is None else max(0, limit - self.claimed)

    def poll(self, *, claim: bool = True) -> float:
        """Settle, claim and reap whatever there is; how long to rest. Idle it only reads."""
        self._collect()
        try:
            self._notice_commits()
            queues = self._promising() if claim else []
            if not queues or self._reap_is_late:
                self._keep_house()
                queues = queues or (self._promising() if claim else [])
            if self._unsettled or queues:
                self._exchange(queues)
        except QueueNotFound:
            return 0  # deleted between the look and the claim; the next look does not find it
        except Error as error:
            return self._faults.failed(error)
        self._faults.cleared()
        self._idle = not (self._look or queues or self._pool.running)
        if self._look and claim and self._free > 0:
            return 0
        until_reap = self._reap_at - time.monotonic() if self._reaper else LONGEST_POLL
        return max(0, min(self._wakeup.poll_interval, until_reap))

    def _notice_commits(self) -> None:
        """Another's commit may have brought a message, or a schedule sooner than the known one."""
        version = self._messages.data_version()
        if version != self._version:
            self._version = version
            self._look = True
            self._reap_soon()

    def _keep_house(self) -> None:
        """Reap what is due, and say that we live.

        Nothing is written right after handlers have started: one that holds the interpreter would
        hold up the transaction, and with it every other writer.
        """
        self._reap()
        if self._entry is not None:
            self._entry.refresh(in_flight=len(self._pool.running))

    @property
    def _reap_is_late(self) -> bool:
        """Whether messages that are there to be claimed have been preferred long enough."""
        return time.monotonic() >= self._reap_at + LATEST

    def _reap_soon(self) -> None:
        self._reap_at = min(self._reap_at, time.monotonic() + REAP_SOON)

    def _reap(self) -> None:
        if self._reaper is not None and time.monotonic() >= self._reap_at:
            self._look = True
            self._reap_at = time.monotonic() + self._reaper.poll()

    def _collect(self) -> None:
        """A settlement that could not be written yet is kept and tried again."""
        for finished in self._pool.take_finished():
            if not finished.settled:
                self._unsettled.append(_settlement(finished))
                continue
            self._count(finished.message)
            if finished.error is not None:
                _tell_failed_afterwards(finished.message, finished.error)

    def _count(self, message: Message) -> None:
        if self._entry is not None:
            self._entry.count(message)

    def _promising(self) -> list[str]:
        """The served queues worth a claim, in their order; none while nothing has changed."""
        if not self._look or self._free == 0:
            return []
        claimable = self._messages.claimable()
        queues = [queue for queue in self._in_order() if queue in claimable]
        self._look = bool(queues)
        return queues

    def _in_order(self) -> Sequence[str]:
        queues = self._options.queues
        if not self._options.in_turn:
            return queues
        self._turn = (self._turn + 1) % len(queues)
        return (*queues[self._turn :], *queues[: self._turn])

    @property
    def _free(self) -> int:
        quota = self._quota
        return self._pool.free if quota is None else min(self._pool.free, quota)

    def _exchange(self, queues: list[str]) -> None:
        at_least_ms = 0 if self._keeper is None else self._keeper.least_lease_ms
        try:
            held, messages = self._messages.exchange(
                self._unsettled,
                queues,
                limit=self._free,
                worker=self._options.name,
                at_least_ms=at_least_ms,
            )
        except IntegrityError:
            self._settle_singly()
            return
        for settlement, kept in zip(self._unsettled, held, strict=True):
            if not kept:
                _warn_lost(settlement.message)
                continue
            self._count(settlement.message)
            if not isinstance(settlement.outcome, Completion):
                self._reap_soon()  # it may come back sooner than anything the reaper waits for
        self._unsettled = []
        self._look = True  # a settled head may have let the next of its group pass
        self.claimed += len(messages)
        self.on_claimed(len(messages))
        self._tell_stall(messages, at_least_ms)
        for message in messages:
            self._pool.start(message)

    def _tell_stall(self, messages: Sequence[Message], at_least_ms: int) -> None:
        """Say once that leases are longer than their queue wants them, why, and what helps."""
        extended = timedelta(milliseconds=at_least_ms)
        if self._is_stall_told or self._keeper is None or not extended:
            return
        if any(message.locked_until - message.locked_at == extended for message in messages):
            self._is_stall_told = True
            logger.warning(
                "no lease was renewed for %.1f s, because a handler held the interpreter or a "
                "transaction the database; leases of this worker last %.1f s now where their "
                "queue's lock_duration is shorter. Run such handlers with --processes, or give "
                "their queue a longer lock_duration",
                self._keeper.longest_stall,
                at_least_ms / 1_000,
            )

    def _settle_singly(self) -> None:
        """One of them cannot be deleted: a foreign key of the application refers to it.

        It must not keep the others. Its lease runs out, and in the end it is a dead letter.
        """
        settlements, self._unsettled = self._unsettled, []
        for settlement in settlements:
            try:
                self._messages.settle(
                    settlement.message, settlement.outcome, error=settlement.error
                )
            except IntegrityError as error:
                message = settlement.message
                logger.exception(
                    "message #%s of %s cannot be settled: %s", message.pk, message.queue, error
                )

    def _give_back_running(self) -> None:
        """Their time is over, and nobody will wait for them here: claimable by others at once.

        The deliveries are not counted, but for those of handlers that have lost their lease, having
        run beyond their timeout.
        """
        self._collect()
        running = [message for message in self._pool.running if message.state == State.LOCKED]
        self._unsettled += [
            Settlement(
                message=message,
                outcome=Abandonment(delay_ms=0),
                error="the worker was stopped before the handler, which had lost its lease, ended",
            )
            for message in running
            if message.lease_lost
        ]
        self._exchange([])
        self._interrupt([message for message in running if not message.lease_lost])

    def _interrupt(self, messages: Sequence[Message]) -> None:
        leases = [lease for message in messages if (lease := message.lease) is not None]
        reason = "the worker was stopped before the handler had ended"
        given_back = interrupt(self._options.using, leases, reason=reason)
        for message in messages:
            if message.pk in given_back:
                message.state = State.ACTIVE
            else:
                _warn_lost(message)


def _settlement(finished: Finished) -> Settlement:
    return Settlement(
        message=finished.message, outcome=finished.ending, error=finished.error, said=finished.said
    )


def _warn_lost(message: Message) -> None:
    logger.warning(
        "the lease of message #%s of %s was lost while its handler ran; its outcome is not written",
        message.pk,
        message.queue,
        extra={"queue": message.queue, "message_id": message.pk},
    )


def _tell_failed_afterwards(message: Message, error: BaseException) -> None:
    logger.error(
        "the handler of message #%s of %s failed after the message had been settled; it stays so",
        message.pk,
        message.queue,
        exc_info=error,
        extra={"queue": message.queue, "message_id": message.pk},
    )
