"""Count the deliveries of workers: by minute and half-hour, by the times that they took, in total.

The counts are kept in memory and written with a worker's registration, never with a message.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..types import DeliveryTimes, PeriodTally, State, Tallies

COMPLETED, FAILED = 0, 1
"""The labels of the counts by minute and by half-hour."""


class Series(NamedTuple):
    """The length of a period in milliseconds, and the number of periods that are kept."""

    period_ms: int
    periods: int

    def oldest(self, now: int) -> int:
        """Return the number of the oldest period that is kept, counted from the epoch."""
        return now // self.period_ms - self.periods + 1


ALWAYS = Series(2**62, 1)
"""A single period that does not end."""

SERIES = {
    "minutes": Series(60_000, 60),
    "half_hours": Series(1_800_000, 48),
    "waits": Series(600_000, 6),
    "runs": Series(600_000, 6),
    **dict.fromkeys(("outcomes", "wait_classes", "wait_ms", "run_classes", "run_ms"), ALWAYS),
}
"""Waits and runs are counted by classes of duration, which are the labels of their series.

The last five are totals since the first worker: they never decrease, as monitoring requires.
"""

OUTCOMES = ("completed", "retried", "dead_lettered", "deferred")
"""The outcomes of deliveries; the label of a total is the position of its outcome."""

CLASSES_PER_DOUBLING = 4
"""A duration is known to about 9 %, which is enough for a median."""


class Tally:
    """Count the deliveries of one worker, per queue and period."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[tuple[str, int, int]]] = defaultdict(Counter)

    def add(self, queue: str, state: str, *, waited_ms: int, ran_ms: int, now: int) -> None:
        """Count a delivery that left its message in `state`. A deferral is only counted in total.

        `waited_ms` is the time from when the message was due to its claim, `ran_ms` the time from
        its claim to its end.
        """
        for name, label, amount in (
            ("outcomes", OUTCOMES.index(state if state in OUTCOMES else "retried"), 1),
            ("wait_classes", duration_class(waited_ms), 1),
            ("wait_ms", 0, max(0, waited_ms)),
            ("run_classes", duration_class(ran_ms), 1),
            ("run_ms", 0, max(0, ran_ms)),
        ):
            self._counts[name][queue, 0, label] += amount
        if state == State.DEFERRED:
            return
        outcome = COMPLETED if state == State.COMPLETED else FAILED
        labels = {
            "minutes": outcome,
            "half_hours": outcome,
            "waits": duration_class(waited_ms),
            "runs": duration_class(ran_ms),
        }
        for name, label in labels.items():
            self._counts[name][queue, now // SERIES[name].period_ms, label] += 1

    def recent(self, *, now: int) -> Tallies:
        """Return the counts of the periods that are kept, and drop the older ones."""
        for name, counts in self._counts.items():
            oldest = SERIES[name].oldest(now)
            for key in [key for key in counts if key[1] < oldest]:
                del counts[key]
        return _by_queue(self._counts)


def merge_tallies(all_tallies: Iterable[Tallies], *, now: int) -> Tallies:
    """Return the sums of several workers' counts for the periods that are kept."""
    sums: dict[str, Counter[tuple[str, int, int]]] = defaultdict(Counter)
    for tallies in all_tallies:
        for name, queues in tallies.items():
            oldest = SERIES[name].oldest(now)
            for queue, rows in queues.items():
                for period, label, count in rows:
                    if period >= oldest:
                        sums[name][queue, period, label] += count
    return _by_queue(sums)


def of_queues(tallies: Tallies, queues: Iterable[str]) -> Tallies:
    """Return the counts of these queues."""
    kept = set(queues)
    return {
        name: {queue: rows for queue, rows in counts.items() if queue in kept}
        for name, counts in tallies.items()
    }


def _by_queue(sums: dict[str, Counter[tuple[str, int, int]]]) -> Tallies:
    tallies: dict[str, dict[str, list[Sequence[int]]]] = {}
    for name, counts in sums.items():
        for (queue, period, label), count in counts.items():
            rows = tallies.setdefault(name, {}).setdefault(queue, [])
            rows.append((period, label, count))
    return tallies


def checked_tallies(tallies: Any) -> Tallies:
    """Return the counts, or none if another program has damaged them.

    Series of another release are left out.
    """
    try:
        return {
            name: {
                queue: [(int(period), int(label), int(count)) for period, label, count in rows]
                for queue, rows in queues.items()
            }
            for name, queues in tallies.items()
            if name in SERIES
        }
    except (AttributeError, TypeError, ValueError):
        return {}


def periods(tallies: Tallies, name: str, queue: str, *, now: int) -> tuple[PeriodTally, ...]:
    """Return the queue's counts in each period of a series, the current period last."""
    counts = {(period, label): count for period, label, count in _rows(tallies, name, queue)}
    series = SERIES[name]
    oldest = series.oldest(now)
    return tuple(
        PeriodTally(
            began_ms=period * series.period_ms,
            completed=counts.get((period, COMPLETED), 0),
            failed=counts.get((period, FAILED), 0),
        )
        for period in range(oldest, oldest + series.periods)
    )


def delivery_times(tallies: Tallies, name: str, queue: str) -> DeliveryTimes | None:
    """Return the median and the 95th percentile of waits or runs; None without a delivery."""
    counts: Counter[int] = Counter()
    for _period, label, count in _rows(tallies, name, queue):
        counts[label] += count
    if not counts.total():
        return None
    return DeliveryTimes(median_ms=_percentile(counts, 0.5), p95_ms=_percentile(counts, 0.95))


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationTotals:
    """The sum of durations, and their number by class."""

    sum_ms: int
    classes: Mapping[int, int]

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.classes.values())

    def below(self, doublings: int) -> int:
        """Return the number of durations below 2 ** `doublings` milliseconds."""
        limit = CLASSES_PER_DOUBLING * doublings
        return sum(count for label, count in self.classes.items() if label <= limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryTotals:
    """The deliveries of a queue since its first worker: by outcome, and their waits and runs."""

    outcomes: Mapping[str, int]
    wait: DurationTotals
    run: DurationTotals


def delivery_totals(tallies: Tallies, queue: str) -> DeliveryTotals:
    """Return the totals of a queue's deliveries."""
    outcomes = _totals(tallies, "outcomes", queue)
    return DeliveryTotals(
        outcomes={outcome: outcomes[label] for label, outcome in enumerate(OUTCOMES)},
        wait=DurationTotals(
            sum_ms=_totals(tallies, "wait_ms", queue)[0],
            classes=_totals(tallies, "wait_classes", queue),
        ),
        run=DurationTotals(
            sum_ms=_totals(tallies, "run_ms", queue)[0],
            classes=_totals(tallies, "run_classes", queue),
        ),
    )


def _totals(tallies: Tallies, name: str, queue: str) -> Counter[int]:
    totals: Counter[int] = Counter()
    for _period, label, count in _rows(tallies, name, queue):
        totals[label] += count
    return totals


def _rows(tallies: Tallies, name: str, queue: str) -> Sequence[Sequence[int]]:
    return tallies.get(name, {}).get(queue, ())


def _percentile(counts: Counter[int], fraction: float) -> int:
    rank, passed = math.ceil(counts.total() * fraction), 0
    for label in sorted(counts):
        passed += counts[label]
        if passed >= rank:
            return _middle(label)
    raise AssertionError("the rank is at most the number of deliveries")


def duration_class(ms: int) -> int:
    """Return the class of a duration: 0 below 1 ms, then four classes for each doubling."""
    return 0 if ms < 1 else 1 + math.floor(CLASSES_PER_DOUBLING * math.log2(ms))


def _middle(label: int) -> int:
    """Return a duration of the class, in milliseconds."""
    return 0 if label < 1 else round(2 ** ((label - 0.5) / CLASSES_PER_DOUBLING))
