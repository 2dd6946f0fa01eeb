"""What handlers and tests wait for: a file that a test makes, or a condition."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST_WAIT = 60.0


def wait_for(path: Path) -> None:
    wait_for_condition(path.exists)


def wait_for_condition(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_WAIT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LONGEST_WAIT:g} s in vain")
        time.sleep(0.01)


async def wait_until_cancelled(steps: dict[str, Any]) -> None:
    touch(f"{steps['started']}.1")
    try:
        await asyncio.sleep(LONGEST_WAIT)
    except asyncio.CancelledError:
        touch(steps["ended"])
        raise


def touch(path: str) -> None:
    Path(path).touch()
