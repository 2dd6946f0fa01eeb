"""The reaper: runs the sweeps when they are due."""

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
    release_expired,
)
from .database_errors import DatabaseErrors
from .options import WorkerOptions
from .registry import WorkerEntry, release_gone
from .shutdown import Shutdown
from .watchdogs import watched

BATCH = 1_000
"""Rows a batch may touch, so that no other writer waits for long."""

Sweep = Callable[..., int]

URGENT: Mapping[str, Sweep] = {
    "leases released": release_expired,
    "schedules activated": activate_due,
    "messages expired": expire,
}
"""What messages wait for; done when it falls due."""

HOUSEKEEPING: Mapping[str, Sweep] = {
    "completed messages pruned": prune_completed,
    "dead letters pruned": prune_dead_letters,
    "records pruned": prune_records,
}
"""What only takes up space; done now and then."""


def run_round(sweeps: Mapping[str, Sweep], using: str) -> dict[str, int]:
    """Run one batch of each sweep; return the rows that each found. A full BATCH may have more."""
    return {name: sweep(using, limit=BATCH) for name, sweep in sweeps.items()}


def run_all(using: str) -> dict[str, int]:
    """Run all sweeps until nothing is due; return the rows that each found."""
    sweeps = {**URGENT, **HOUSEKEEPING}
    total = dict.fromkeys(sweeps, 0)
    while True:
        with yield_to_other_writers(using):
            counts = run_round(sweeps, using)
        total = {name: total[name] + count for name, count in counts.items()}
        if max(counts.values()) < BATCH:
            return total


logger = get_logger("django_mqlite.worker")

LONGEST_POLL = 1.0
"""Seconds: a step of the clock, or the death of a worker of this machine, is noticed so soon."""

HOUSEKEEPING_EVERY = 10.0
"""Seconds between two rounds of what only takes up space."""

GAP = 0.01
"""Seconds between two batches, about what one takes, so that other writers get in."""

STANDALONE_POLL = 0.1
"""Seconds: without a doorbell, a new schedule is noticed so soon."""


class Reaper:
    """Any number of them may run at once: each sweep is one fenced statement."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._housekeeping_at = 0.0
        self._gone_at = 0.0

    def poll(self) -> float:
        """Sweep one batch of what is due; return the seconds to wait. Only reads while idle."""
        if time.monotonic() >= self._gone_at:
            self._gone_at = time.monotonic() + LONGEST_POLL
            release_gone(self._using)
        wait = next_event_in(self._using)
        if wait == 0:
            if self._is_more_after(URGENT):
                return GAP
            wait = next_event_in(self._using)
        if time.monotonic() >= self._housekeeping_at:
            if self._is_more_after(HOUSEKEEPING):
                return GAP
            self._housekeeping_at = time.monotonic() + HOUSEKEEPING_EVERY
        return LONGEST_POLL if wait is None else min(wait or GAP, LONGEST_POLL)

    def _is_more_after(self, sweeps: Mapping[str, Sweep]) -> bool:
        return max(run_round(sweeps, self._using).values()) >= BATCH

    def run(self, stop: Shutdown) -> None:
        """Reap until asked to stop: a process of its own, beside workers that do not reap.

        It is on the register like a worker, one without queues, so that people can see it.
        """
        errors = DatabaseErrors()
        entry = WorkerEntry(WorkerOptions(using=self._using, queues=(), threads=0))
        with watched(self._using, stop):
            logger.info("the reaper reaps in database %r", self._using)
            while not stop.wait(self._rest(errors, entry)):
                pass
        with suppress(Error):  # it is forgotten when it is stale
            entry.remove()
        logger.info("the reaper stops")

    def _rest(self, errors: DatabaseErrors, entry: WorkerEntry) -> float:
        try:
            entry.refresh(in_flight=0)
            rest = self.poll()
        except Error as error:
            return errors.failed(error)
        errors.cleared()
        return min(rest, STANDALONE_POLL)
