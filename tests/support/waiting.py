"""Wait for a condition of real processes, with a limit."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = float(os.environ.get("MQLITE_TEST_PATIENCE", "30"))
"""Seconds: more than anything here takes; a very busy machine may need more still."""


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = PATIENCE) -> T:
    """Return the first true result; fail the test if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.01)
    return answer
