"""Whether the database is still the file that was opened."""

import logging

from ..doorbell import database_path
from .stop import Stop

logger = logging.getLogger("django_mqlite.worker")


class DatabaseFile:
    """A file put in its place would go unnoticed: SQLite works on with the one it has open.

    It is looked up, never opened: closing it would drop SQLite's locks.
    """

    def __init__(self, using: str) -> None:
        self._path = database_path(using)
        self._opened = self._look()

    def check(self, stop: Stop) -> None:
        """Ask to stop, once, where another file or none has taken its place."""
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
