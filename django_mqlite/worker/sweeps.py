"""The reaper's jobs, each a bounded batch in a transaction of its own."""

from collections.abc import Callable, Mapping

from ..maintenance import (
    activate_due,
    expire,
    forget,
    prune_completed,
    prune_dead_letters,
    release_expired,
)
from ..transactions import one_of_many

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
    "records forgotten": forget,
}
"""What only takes up space; done now and then."""


def run_round(sweeps: Mapping[str, Sweep], using: str) -> dict[str, int]:
    """One batch of each sweep; how many rows each found. A full BATCH: there may be more."""
    return {name: sweep(using, limit=BATCH) for name, sweep in sweeps.items()}


def run_all(using: str) -> dict[str, int]:
    """Everything that is to be done now; how many rows each sweep found."""
    sweeps = {**URGENT, **HOUSEKEEPING}
    total = dict.fromkeys(sweeps, 0)
    while True:
        with one_of_many(using):
            counts = run_round(sweeps, using)
        total = {name: total[name] + count for name, count in counts.items()}
        if max(counts.values()) < BATCH:
            return total
