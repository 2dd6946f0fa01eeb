"""A progress bar for long operations on a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WIDTH = 40
UPDATE_INTERVAL = 0.1
"""Minimum seconds between two updates, because terminals are slow."""
CLEAR_LINE = "\r\x1b[K"


@contextmanager
def progress_bar(
    write: Callable[[str], object], unit: str, total: int, *, shown: bool
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of units done; remove the bar at the end.

    If `shown` is false, write nothing.
    """
    if not shown:
        yield lambda done: None
        return
    drawn_at = -UPDATE_INTERVAL

    def update(done: int) -> None:
        nonlocal drawn_at
        now = time.monotonic()
        if now - drawn_at >= UPDATE_INTERVAL or done >= total:
            drawn_at = now
            filled = min(WIDTH * done // (total or 1), WIDTH)
            write(f"{CLEAR_LINE}{unit} {'#' * filled:-<{WIDTH}} {done:,}/{total:,}")

    update(0)
    try:
        yield update
    finally:
        write(CLEAR_LINE)
