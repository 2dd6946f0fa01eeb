"""Retry database errors with backoff; log the first; give up after a minute."""

import time

from django.db import Error

from ..guard import get_logger

logger = get_logger("django_mqlite.worker")

FIRST_REST = 0.1
LONGEST_RETRY_DELAY = 5.0
GIVE_UP_AFTER = 60.0
"""Seconds of continuous failure after which the process exits, so that it can be restarted."""

ADVICE = {
    "malformed": "the file is damaged; stop everything that uses it and restore the last backup",
    "not a database": "another program's file, or a damaged one; look at NAME in DATABASES",
    "locked": "another writer holds the lock longer than the timeout; look for long transactions",
    "full": "the disk is full; free space",
    "readonly": "the file or its directory cannot be written by this user",
    "unable to open": "the file is missing or its directory cannot be entered",
    "no such table": "run `manage.py migrate`",
    "disk i/o": "the disk is full or fails; check its free space and the system's log",
}


def advice(error: BaseException) -> str:
    """Return advice for this database error."""
    text = str(error).lower()
    return next((hint for sign, hint in ADVICE.items() if sign in text), "see the error")


class DatabaseErrors:
    """The backoff of a loop whose database calls fail."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._rest = FIRST_REST

    def failed(self, error: Error) -> float:
        """Return the seconds to wait before the next try; raise `error` after GIVE_UP_AFTER."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._rest = now, FIRST_REST
            logger.error("the database failed: %s (%s); trying on", error, advice(error))
        elif now - self._since > GIVE_UP_AFTER:
            raise error
        rest, self._rest = self._rest, min(self._rest * 2, LONGEST_RETRY_DELAY)
        return rest

    def cleared(self) -> None:
        """Reset the backoff after a successful call."""
        if self._since is not None:
            logger.info("the database answers again after %.1f s", time.monotonic() - self._since)
            self._since = None
