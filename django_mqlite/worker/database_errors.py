"""Retry database errors with backoff; log the first; give up after a minute."""

import time

from django.db import Error

from ..guard import get_logger

logger = get_logger("django_mqlite.worker")

FIRST_RETRY_DELAY = 0.1
MAX_RETRY_DELAY = 5.0
GIVE_UP_AFTER = 60.0
"""Seconds of continuous failure after which the process exits, so that it can be restarted."""

ADVICE = {
    "malformed": "the file is damaged; stop everything that uses it and restore the last backup",
    "not a database": "the file is damaged or not a SQLite database; check NAME in DATABASES",
    "locked": "another writer held the lock longer than the timeout; look for long transactions",
    "full": "the disk is full; free some disk space",
    "readonly": "the file or its directory cannot be written by this user",
    "unable to open": "the file is missing, or this user cannot write in its directory",
    "no such table": "run `manage.py migrate`",
    "disk i/o": "the disk is full or failing; check its free space and the system log",
}


def advice(error: BaseException) -> str:
    """Return advice for this database error."""
    text = str(error).lower()
    return next((hint for fragment, hint in ADVICE.items() if fragment in text), "see the error")


class DatabaseErrors:
    """The retry backoff of a loop whose database calls fail."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._delay = FIRST_RETRY_DELAY

    def failed(self, error: Error) -> float:
        """Return the seconds to wait before a retry; raise `error` after GIVE_UP_AFTER."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._delay = now, FIRST_RETRY_DELAY
            logger.error("the database failed: %s (%s); retrying", error, advice(error))
        elif now - self._since > GIVE_UP_AFTER:
            raise error
        delay, self._delay = self._delay, min(self._delay * 2, MAX_RETRY_DELAY)
        return delay

    def cleared(self) -> None:
        """Reset the backoff after a successful call."""
        if self._since is not None:
            logger.info(
                "the database is available again after %.1f s", time.monotonic() - self._since
            )
            self._since = None
