"""Waiting for real processes: on a condition, never for time alone, and never without an end."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds: far beyond what anything here takes, so that a loaded machine fails no test."""


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = PATIENCE) -> T:
    """The first true answer; fails the test if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.01)
    return answer
