"""The reaper's jobs, each a bounded batch in a transaction of its own."""

from collections.abc import Callable, Mapping

from ..maintenance import activate_due, release_expired

BATCH = 1_000
"""Rows a batch may touch, so that no other writer waits for long."""

Sweep = Callable[..., int]

SWEEPS: Mapping[str, Sweep] = {
    "leases released": release_expired,
    "schedules activated": activate_due,
}


def run_round(using: str) -> dict[str, int]:
    """One batch of each sweep; how many messages each found."""
    return {name: sweep(using, limit=BATCH) for name, sweep in SWEEPS.items()}


def run_sweeps(using: str) -> dict[str, int]:
    """Everything that is due now; how many messages each sweep found."""
    total = dict.fromkeys(SWEEPS, 0)
    while True:
        counts = run_round(using)
        total = {name: total[name] + count for name, count in counts.items()}
        if max(counts.values()) < BATCH:
            return total
