"""The reaper: dispatches recurring schedules and runs the sweeps, when they are due."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from django.db import Error

from ..guard import get_logger
from ..transactions import yield_to_other_writers
from ..verbs.sweeps import (
    activate_due,
    expire,
    next_event_in,
    prune_completed,
    prune_dead_letters,
    prune_records,
    release_expired_leases,
)
from .database_errors import DatabaseErrors
from .dispatcher import Dispatcher
from .options import WorkerOptions
from .registry import WorkerEntry, release_dead_workers
from .shutdown import Shutdown
from .watchdogs import watched

BATCH = 1_000
"""Maximum rows of a batch, so that no other writer waits long."""

Sweep = Callable[..., int]

URGENT: Mapping[str, Sweep] = {
    "leases released": release_expired_leases,
    "schedules activated": activate_due,
    "messages expired": expire,
}
"""Sweeps that messages wait for; they run as soon as they are due."""

HOUSEKEEPING: Mapping[str, Sweep] = {
    "completed messages pruned": prune_completed,
    "dead letters pruned": prune_dead_letters,
    "records pruned": prune_records,
}
"""Sweeps that free space; they run every HOUSEKEEPING_INTERVAL."""


def run_round(sweeps: Mapping[str, Sweep], using: str) -> dict[str, int]:
    """Run one batch of each sweep; return the row counts. A sweep with BATCH rows may have more."""
    return {name: sweep(using, limit=BATCH) for name, sweep in sweeps.items()}


def run_all(using: str) -> dict[str, int]:
    """Run all sweeps until nothing is due; return the row count of each."""
    sweeps = {**URGENT, **HOUSEKEEPING}
    total = dict.fromkeys(sweeps, 0)
    while True:
        with yield_to_other_writers(using):
            counts = run_round(sweeps, using)
        total = {name: total[name] + count for name, count in counts.items()}
        if max(counts.values()) < BATCH:
            return total


logger = get_logger("django_mqlite.worker")

MAX_POLL_INTERVAL = 1.0
"""Maximum seconds until a clock change or a dead worker on this machine is noticed."""

HOUSEKEEPING_INTERVAL = 10.0
"""Seconds between two rounds of HOUSEKEEPING."""

BATCH_PAUSE = 0.01
"""Seconds between two batches, about the duration of one, so that other writers get a turn."""

STANDALONE_POLL_INTERVAL = 0.1
"""Maximum seconds until a standalone reaper, which has no doorbell, notices a new schedule."""


class Reaper:
    """Run sweeps when they are due. Several reapers may run at once: each sweep is fenced."""

    def __init__(self, using: str, dispatcher: Dispatcher | None = None) -> None:
        self._using = using
        self._dispatcher = dispatcher
        self._housekeeping_at = 0.0
        self._check_workers_at = 0.0

    def poll(self) -> float:
        """Dispatch and sweep one batch of what is due; return the seconds to wait.

        Only reads while idle.
        """
        until_tick = self._dispatcher.poll() if self._dispatcher else None
        wait = self._sweep()
        return wait if until_tick is None else min(wait, until_tick)

    def _sweep(self) -> float:
        if time.monotonic() >= self._check_workers_at:
            self._check_workers_at = time.monotonic() + MAX_POLL_INTERVAL
            release_dead_workers(self._using)
        wait = next_event_in(self._using)
        if wait == 0:
            if self._has_more_after(URGENT):
                return BATCH_PAUSE
            wait = next_event_in(self._using)
        if time.monotonic() >= self._housekeeping_at:
            if self._has_more_after(HOUSEKEEPING):
                return BATCH_PAUSE
            self._housekeeping_at = time.monotonic() + HOUSEKEEPING_INTERVAL
        return MAX_POLL_INTERVAL if wait is None else min(wait or BATCH_PAUSE, MAX_POLL_INTERVAL)

    def _has_more_after(self, sweeps: Mapping[str, Sweep]) -> bool:
        return max(run_round(sweeps, self._using).values()) >= BATCH

    def run(self, shutdown: Shutdown) -> None:
        """Reap in a separate process until shutdown is requested.

        The process is registered like a worker without queues, so that operators can see it.
        """
        errors = DatabaseErrors()
        entry = WorkerEntry(WorkerOptions(using=self._using, queues=(), threads=0))
        with watched(self._using, shutdown):
            logger.info("the reaper has started on database %r", self._using)
            while not shutdown.wait(self._poll_registered(errors, entry)):
                pass
        with suppress(Error):  # stale entries are recognized by their age
            entry.remove()
        logger.info("the reaper has stopped")

    def _poll_registered(self, errors: DatabaseErrors, entry: WorkerEntry) -> float:
        try:
            entry.refresh(in_flight=0)
            seconds = self.poll()
        except Error as error:
            return errors.failed(error)
        errors.cleared()
        return min(seconds, STANDALONE_POLL_INTERVAL)
