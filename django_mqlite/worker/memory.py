"""Whether the process has grown beyond what it may hold."""

import time

import psutil

from ..guard import get_logger

logger = get_logger("django_mqlite.worker")

LOOK_EVERY = 1.0
"""Seconds between two looks."""


class Memory:
    """Watches the resident memory of this process; without a limit it never looks."""

    def __init__(self, limit_mb: int | None) -> None:
        self._limit_mb = limit_mb
        self._process = psutil.Process()
        self._look_at = 0.0
        self._exceeded = False

    @property
    def exceeded(self) -> bool:
        """Whether it is too large now, as of a second ago at most."""
        if self._limit_mb is not None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY
            used_mb = self._process.memory_info().rss / 2**20
            if used_mb > self._limit_mb and not self._exceeded:
                logger.warning("using %.0f MB of memory, over --max-memory; ending", used_mb)
                self._exceeded = True
        return self._exceeded
