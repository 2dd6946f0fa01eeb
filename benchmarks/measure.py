"""How a scenario times things and says what they were timed on."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import django
import psutil
from django.db import connection

Row = dict[str, object]

ROUNDS = int(os.environ.get("MQLITE_BENCHMARK_ROUNDS", "7"))
"""Of each contender, one after the other: what drifts on the machine drifts for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The spread of one operation's time, in microseconds."""

    name: str
    times: int
    median: float
    p90: float
    worst: float


def figure(name: str, samples_us: list[float]) -> Figure:
    """The figure of these samples; the median is the one to quote."""
    ordered = sorted(samples_us)
    return Figure(
        name=name,
        times=len(ordered),
        median=round(statistics.median(ordered), 1),
        p90=round(ordered[int(len(ordered) * 0.9)], 1),
        worst=round(ordered[-1], 1),
    )


def timed(operation: Callable[[], Any]) -> tuple[float, Any]:
    """Microseconds, and what the operation gave."""
    started = time.perf_counter()
    answer = operation()
    return (time.perf_counter() - started) * 1e6, answer


Contender = Callable[[], int]
"""Does its work once and says how many messages that were."""


def against_floor(name: str, ours: Contender, floor: Contender) -> Row:
    """Rates of both in interleaved rounds: medians, spread, and the ratio within each round."""
    rates: dict[str, list[float]] = {"ours": [], "floor": []}
    for _ in range(ROUNDS):
        for contender, work in (("ours", ours), ("floor", floor)):
            spent_us, count = timed(work)
            rates[contender].append(count * 1e6 / spent_us)
    ratios = [mine / bare for mine, bare in zip(rates["ours"], rates["floor"], strict=True)]
    return {
        "name": name,
        "messages/s": round(statistics.median(rates["ours"])),
        "spread": spread(rates["ours"]),
        "floor": round(statistics.median(rates["floor"])),
        "floor's spread": spread(rates["floor"]),
        "of floor": round(statistics.median(ratios), 2),
    }


def spread(values: list[float]) -> str:
    """The least and the most."""
    return f"{min(values):.0f}–{max(values):.0f}"


def percentiles(samples_ms: list[float]) -> Mapping[str, float]:
    """Milliseconds."""
    ordered = sorted(samples_ms)
    return {
        "p50 ms": round(statistics.median(ordered), 2),
        "p99 ms": round(ordered[max(0, int(len(ordered) * 0.99) - 1)], 2),
        "max ms": round(ordered[-1], 1),
    }


def surroundings() -> dict[str, Any]:
    """What the figures depend on: versions, pragmas, hardware."""
    with connection.cursor() as cursor:
        pragmas = {
            name: cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "page_size", "journal_size_limit")
        }
    return {
        "python": platform.python_version(),
        "django": django.__version__,
        "sqlite": connection.Database.sqlite_version,
        "engine": connection.settings_dict["ENGINE"],
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": psutil.cpu_count(),
        "load before": os.getloadavg()[0],
        "pragmas": pragmas,
    }


def as_rows(figures: list[Figure]) -> list[Row]:
    return [asdict(one) for one in figures]
