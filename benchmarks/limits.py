"""What do max_in_flight and a rate cost a loop of claim and complete, 1 or 64 at a time?"""

from functools import partial

from benchmarks.floor import repeated
from benchmarks.measure import ROUNDS, Row, spread, timed
from django_mqlite import enqueue_many
from django_mqlite.models import Message, Queue

LIMITS = {
    "none": {},
    "max_in_flight": {"max_in_flight": 1_000},
    "rate": {"rate": "1000000/s"},
    "both": {"max_in_flight": 1_000, "rate": "1000000/s"},
}
TIMES = {1: 200, 64: 20}
"""Claims per round, by the messages of a claim."""


def run() -> list[Row]:
    for name, options in LIMITS.items():
        Queue.objects.create_queue(name, **options)
        for _ in range(2 + 2 * ROUNDS):
            enqueue_many(name, [b"x" * 256] * (sum(n * times for n, times in TIMES.items()) // 2))
    return [row for size, times in TIMES.items() for row in compare(size, times)]


def compare(size: int, times: int) -> list[Row]:
    """Return the rate of each queue, in alternating rounds."""
    rates: dict[str, list[float]] = {name: [] for name in LIMITS}
    for _ in range(ROUNDS):
        for name, values in rates.items():
            spent_us, count = timed(repeated(times, partial(claim_and_complete, name, size)))
            values.append(count * 1e6 / spent_us)
    unlimited = sorted(rates["none"])[ROUNDS // 2]
    return [
        {
            "name": f"{size} per claim, limits: {name}",
            "messages/s": round(sorted(values)[ROUNDS // 2]),
            "spread": spread(values),
            "of no limit": round(sorted(values)[ROUNDS // 2] / unlimited, 2),
        }
        for name, values in rates.items()
    ]


def claim_and_complete(queue: str, size: int) -> int:
    """Claim and complete messages; return their number."""
    claimed = Message.objects.claim(queue, limit=size)
    if len(claimed) < size:
        raise RuntimeError(f"queue {queue} has too few messages")
    return sum(Message.objects.complete_many(claimed))
