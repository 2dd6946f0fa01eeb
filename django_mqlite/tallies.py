"""How many deliveries ended well and badly, by queue and minute, for the last hour.

A worker counts in its memory and writes the counts with its entry in the register, which it writes
anyhow: no message costs a write for it. So they are those of workers only, up to 15 s late, and
less what a killed worker had not written yet.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .types import MinuteTally, State, Tallies

MINUTE_MS = 60_000
MINUTES = 60
"""Kept and shown."""


class Tally:
    """What one worker counts."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])

    def add(self, queue: str, state: str, *, now: int) -> None:
        """A delivery has left its message in this state; set aside it is neither well nor badly."""
        if state == State.DEFERRED:
            return
        self._counts[queue, now // MINUTE_MS][state != State.COMPLETED] += 1

    def facts(self, *, now: int) -> Tallies:
        """What is to be written; older minutes are forgotten here."""
        oldest = _oldest(now)
        for key in [key for key in self._counts if key[1] < oldest]:
            del self._counts[key]
        facts: dict[str, list[Sequence[int]]] = defaultdict(list)
        for (queue, minute), (completed, failed) in self._counts.items():
            facts[queue].append((minute, completed, failed))
        return dict(facts)


def merged(all_tallies: Iterable[Tallies], *, now: int) -> Tallies:
    """The sums of several workers' counts."""
    sums: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for tallies in all_tallies:
        for queue, minutes in tallies.items():
            for minute, completed, failed in minutes:
                sums[queue][minute][0] += completed
                sums[queue][minute][1] += failed
    oldest = _oldest(now)
    return {
        queue: [(minute, *counts) for minute, counts in minutes.items() if minute >= oldest]
        for queue, minutes in sums.items()
    }


def last_hour(tallies: Tallies, queue: str, *, now: int) -> tuple[MinuteTally, ...]:
    """The queue's last hour, minute by minute, the one that is running last."""
    counts: Mapping[int, Sequence[int]] = {
        minute: counts for minute, *counts in tallies.get(queue, ())
    }
    oldest = _oldest(now)
    return tuple(
        MinuteTally(began_ms=minute * MINUTE_MS, completed=completed, failed=failed)
        for minute in range(oldest, oldest + MINUTES)
        for completed, failed in [counts.get(minute, (0, 0))]
    )


def _oldest(now: int) -> int:
    return now // MINUTE_MS - MINUTES + 1
