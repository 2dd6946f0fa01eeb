"""Leases of running handlers are renewed at a third of their length."""

import logging
from datetime import UTC, datetime, timedelta
from threading import Thread

from django.db import Error, connections

from .. import clock
from ..models import Message
from .faults import advice
from .pool import Pool
from .stop import Stop

logger = logging.getLogger("django_mqlite.worker")

LONGEST_REST = 1.0
SHORTEST_REST = 0.01


class LeaseKeeper:
    """Renews from a thread and a connection of its own: a busy consumer cannot starve it."""

    def __init__(self, using: str, pool: Pool) -> None:
        self._using = using
        self._pool = pool
        self._ended = Stop()
        self._lost: set[tuple[int, str | None]] = set()
        self._thread = Thread(target=self._run, name="mqlite-lease-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the last handler: while they drain they keep their leases."""
        self._ended.request()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._ended.wait(self.poll()):
            pass
        connections.close_all()

    def poll(self) -> float:
        """Renew what has used up a third of its lease, all in one statement; how long to rest."""
        try:
            self._renew([m for m in self._held() if _renew_in(m) <= 0])
        except Error as error:
            logger.error("leases were not renewed: %s (%s); trying on", error, advice(error))
            return SHORTEST_REST * 10
        rests = [_renew_in(message) for message in self._held()]
        return max(SHORTEST_REST, min([LONGEST_REST, *rests]))

    def _held(self) -> list[Message]:
        running = list(self._pool.running.values())
        return [
            message for message in running if (message.pk, message.lock_token) not in self._lost
        ]

    def _renew(self, due: list[Message]) -> None:
        if not due:
            return
        kept = Message.objects.db_manager(self._using).renew_many(due)
        for message, held in zip(due, kept, strict=True):
            if held:
                message.locked_at = _now()
            else:
                self._lose(message)

    def _lose(self, message: Message) -> None:
        self._lost.add((message.pk, message.lock_token))
        logger.warning(
            "the lease of message #%s of %s is lost; the outcome of its handler will not count",
            message.pk,
            message.queue,
            extra={"queue": message.queue, "message_id": message.pk},
        )


def _now() -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC)


def _renew_in(message: Message) -> float:
    """Seconds until a third of the lease has passed."""
    third: timedelta = (message.locked_until - message.locked_at) / 3
    left: timedelta = message.locked_at + third - _now()
    return left.total_seconds()
