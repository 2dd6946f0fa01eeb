"""Timing for the scenarios, and a description of the environment."""

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
"""Rounds per contender. Contenders alternate, so that the machine's load affects all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The spread of one operation's time, in microseconds."""

    name: str
    times: int
    median: float
    p90: float
    worst: float


def figure(name: str, samples_us: list[float]) -> Figure:
    """Return the figure of these samples; quote its median."""
    ordered = sorted(samples_us)
    return Figure(
        name=name,
        times=len(ordered),
        median=round(statistics.median(ordered), 1),
        p90=round(ordered[int(len(ordered) * 0.9)], 1),
        worst=round(ordered[-1], 1),
    )


def timed(operation: Callable[[], Any]) -> tuple[float, Any]:
    """Return the microseconds and the result of the operation."""
    started = time.perf_counter()
    result = operation()
    return (time.perf_counter() - started) * 1e6, result


Contender = Callable[[], int]
"""A function that does its work once and returns the number of messages."""


def against_floor(name: str, ours: Contender, floor: Contender) -> Row:
    """Return the rates of both in alternating rounds: medians, spreads and the median ratio."""
    rates: dict[str, list[float]] = {"ours": [], "floor": []}
    for _ in range(ROUNDS):
        for contender, work in (("ours", ours), ("floor", floor)):
            spent_us, count = timed(work)
            rates[contender].append(count * 1e6 / spent_us)
    ratios = [
        rate / floor_rate for rate, floor_rate in zip(rates["ours"], rates["floor"], strict=True)
    ]
    return {
        "name": name,
        "messages/s": round(statistics.median(rates["ours"])),
        "spread": spread(rates["ours"]),
        "floor": round(statistics.median(rates["floor"])),
        "floor's spread": spread(rates["floor"]),
        "of floor": round(statistics.median(ratios), 2),
    }


def spread(values: list[float]) -> str:
    """Return the minimum and the maximum."""
    return f"{min(values):.0f}–{max(values):.0f}"


def percentiles(samples_ms: list[float]) -> Mapping[str, float]:
    """Return percentiles in milliseconds."""
    ordered = sorted(samples_ms)
    return {
        "p50 ms": round(statistics.median(ordered), 2),
        "p99 ms": round(ordered[max(0, int(len(ordered) * 0.99) - 1)], 2),
        "max ms": round(ordered[-1], 1),
    }


def environment() -> dict[str, Any]:
    """Return the versions, pragmas and hardware that the figures depend on."""
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
    return [asdict(figure) for figure in figures]
