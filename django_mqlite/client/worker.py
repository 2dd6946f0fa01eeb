"""The work loop: long polls, handlers in threads, and renewal of their leases."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Condition, Event, Thread

from ..exceptions import Reject, Retry
from .errors import BrokerError, LeaseLost, Unreachable
from .messages import Received

logger = logging.getLogger("django_mqlite.client")

POLL = 5.0
"""Seconds of a long poll; the worker notices `stop` after this time."""

SHORTEST_RENEWAL, LONGEST_RENEWAL = 0.2, 60.0


class Worker:
    """Receive no more messages than there are free threads, so that none waits under a lease.

    `receive(limit=n)` returns up to n messages, and `renew` which of these messages it renewed.
    """

    def __init__(
        self,
        handler: Callable[[Received], object],
        *,
        receive: Callable[..., list[Received]],
        renew: Callable[[list[Received]], list[bool]],
        threads: int,
        stop: Event,
    ) -> None:
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._handler = handler
        self._receive_messages = receive
        self._renew = renew
        self._threads = threads
        self._stop = stop
        self._held: set[Received] = set()
        self._changed = Condition()
        self._ended = Event()

    def run(self) -> None:
        """Work until `stop` is set; then let the running handlers finish."""
        renewer = Thread(target=self._renew_leases, name="mqlite-renewer", daemon=True)
        renewer.start()
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="mqlite-worker")
        try:
            while not self._stop.is_set():
                self._receive(pool)
        except KeyboardInterrupt:
            logger.info("stopping; the running handlers finish")
        finally:
            pool.shutdown(wait=True)
            with self._changed:
                self._ended.set()
                self._changed.notify_all()
            renewer.join()

    def _receive(self, pool: ThreadPoolExecutor) -> None:
        with self._changed:
            while len(self._held) >= self._threads:
                self._changed.wait()
            if self._stop.is_set():
                return
            free = self._threads - len(self._held)
        messages = self._receive_messages(limit=free)
        with self._changed:
            self._held.update(messages)
            self._changed.notify_all()
        for message in messages:
            pool.submit(self._deliver, message)

    def _deliver(self, message: Received) -> None:
        try:
            self._handle(message)
        finally:
            with self._changed:
                self._held.discard(message)
                self._changed.notify_all()

    def _handle(self, message: Received) -> None:
        try:
            self._settle(message, self._error_of(message))
        except LeaseLost:
            logger.warning("message #%s of %s: its lease was lost", message.id, message.queue)
        except (BrokerError, Unreachable) as error:
            logger.error("message #%s of %s was not settled: %s", message.id, message.queue, error)

    def _error_of(self, message: Received) -> BaseException | None:
        try:
            self._handler(message)
        except BaseException as error:  # noqa: BLE001 - SystemExit ends the delivery, not the worker
            return error
        return None

    def _settle(self, message: Received, error: BaseException | None) -> None:
        match error:
            case None:
                message.complete()
            case Reject():
                message.reject(error.reason, error.description)
            case Retry():
                message.abandon(delay=error.delay)
            case _:
                logger.error("message #%s of %s failed", message.id, message.queue, exc_info=error)
                message.abandon()

    def _renew_leases(self) -> None:
        while self._wait_for_messages():
            self._ended.wait(self._pause())
            held = self._live()
            with suppress(BrokerError, Unreachable):
                for message, renewed in zip(held, self._renew(held), strict=True):
                    message.lost = not renewed

    def _wait_for_messages(self) -> bool:
        """Wait until there is a lease to renew; return False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._held or self._ended.is_set())
        return not self._ended.is_set()

    def _live(self) -> list[Received]:
        with self._changed:
            return [message for message in self._held if not message.lost]

    def _pause(self) -> float:
        """Return the seconds until the next renewal: a third of the shortest lease."""
        leases = [message.lease_ms / 1000 for message in self._live()]
        return min(max(min(leases, default=0.0) / 3, SHORTEST_RENEWAL), LONGEST_RENEWAL)
