"""The reaper: looks when the next thing is due, sweeps, rests."""

from django.db import Error

from ..maintenance import next_event_in
from .faults import Faults
from .stop import Stop
from .sweeps import BATCH, run_round

LONGEST_REST = 1.0
"""Seconds: a step of the clock is noticed so soon."""

LONE_REST = 0.1
"""Seconds: without a doorbell, a new schedule is noticed so soon."""


class Reaper:
    """Any number of them may run at once: each sweep is one fenced statement."""

    def __init__(self, using: str) -> None:
        self._using = using

    def poll(self) -> float:
        """Sweep one batch of what is due; how long to rest. Idle it only reads."""
        wait = next_event_in(self._using)
        if wait == 0:
            if max(run_round(self._using).values()) == BATCH:
                return 0
            wait = next_event_in(self._using)
        return LONGEST_REST if wait is None else min(wait, LONGEST_REST)

    def run(self, stop: Stop) -> None:
        """Reap until asked to stop: a process of its own, beside workers that do not reap."""
        faults = Faults()
        while not stop.wait(self._rest(faults)):
            pass

    def _rest(self, faults: Faults) -> float:
        try:
            rest = self.poll()
        except Error as error:
            return faults.failed(error)
        faults.cleared()
        return min(rest, LONE_REST)
