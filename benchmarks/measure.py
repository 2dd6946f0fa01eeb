"""How a scenario times things and says what they were timed on."""

import platform
import sqlite3
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import django
from django.db import connection


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


def surroundings() -> dict[str, Any]:
    """What the figures depend on: versions, pragmas, hardware."""
    with connection.cursor() as cursor:
        pragmas = {
            name: cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "page_size")
        }
    return {
        "python": platform.python_version(),
        "django": django.__version__,
        "sqlite": sqlite3.sqlite_version,
        "machine": platform.machine(),
        "system": platform.system(),
        "pragmas": pragmas,
    }


def as_rows(figures: list[Figure]) -> list[dict[str, Any]]:
    return [asdict(one) for one in figures]
