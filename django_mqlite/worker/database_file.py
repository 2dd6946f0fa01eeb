"""Whether the database is still the file that was opened."""

import logging
import time

from ..doorbell import database_path
from .stop import Stop

logger = logging.getLogger("django_mqlite.worker")

LOOK_EVERY = 1.0
"""Seconds between two looks."""


class DatabaseFile:
    """A file put in its place would go unnoticed: SQLite works on with the one it has open.

    It is looked up, never opened: closing it would drop SQLite's locks.
    """

    def __init__(self, using: str) -> None:
        self._path = database_path(using)
        self._opened = self._look()
        self._look_at = 0.0

    def check(self, stop: Stop) -> None:
        """Ask to stop, once, where another file or none has taken its place in the last second."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_EVERY
        if self._look() != self._opened and not stop.requested:
            logger.error(
                "%s was replaced or removed; this process ends, to be started on the file that "
                "is there now. Stop workers before putting a file in the place of their database",
                self._path,
            )
            stop.request(failed=True)

    def _look(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
