"""A progress bar for long operations on a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WIDTH = 40
EVERY = 0.1
"""Seconds between two updates: a terminal is slow."""
CLEAR_LINE = "\r\x1b[K"


@contextmanager
def progress_bar(
    write: Callable[[str], object], unit: str, total: int, *, wanted: bool
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many units are done; remove the bar at the end.

    If the bar is not wanted, nothing is written.
    """
    if not wanted:
        yield lambda done: None
        return
    drawn_at = -EVERY

    def update(done: int) -> None:
        nonlocal drawn_at
        now = time.monotonic()
        if now - drawn_at >= EVERY or done >= total:
            drawn_at = now
            filled = min(WIDTH * done // (total or 1), WIDTH)
            write(f"{CLEAR_LINE}{unit} {'#' * filled:-<{WIDTH}} {done:,}/{total:,}")

    update(0)
    try:
        yield update
    finally:
        write(CLEAR_LINE)
