"""A database that fails is waited for, told about once, and given up in the end."""

import time

from django.db import Error

from ..guard import get_logger

logger = get_logger("django_mqlite.worker")

FIRST_REST = 0.1
LONGEST_RETRY_DELAY = 5.0
GIVE_UP_AFTER = 60.0
"""Seconds of nothing but failure after which the process ends, so that its manager restarts it."""

ADVICE = {
    "malformed": "the file is damaged; stop everything that uses it and restore the last backup",
    "not a database": "another program's file, or a damaged one; look at NAME in DATABASES",
    "locked": "another writer holds the lock longer than the timeout; look for long transactions",
    "full": "the disk is full; free space",
    "readonly": "the file or its directory cannot be written by this user",
    "unable to open": "the file is missing or its directory cannot be entered",
    "no such table": "run `manage.py migrate`",
    "disk i/o": "the disk fails; look at the system's log",
}


def advice(error: BaseException) -> str:
    """What to do about this error of the database."""
    said = str(error).lower()
    return next((hint for sign, hint in ADVICE.items() if sign in said), "see the error")


class DatabaseErrors:
    """Counts how long a loop has failed and says how long it should rest."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._rest = FIRST_REST

    def failed(self, error: Error) -> float:
        """Seconds to rest before the next try; raises `error` when there is no more hope."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._rest = now, FIRST_REST
            logger.error("the database failed: %s (%s); trying on", error, advice(error))
        elif now - self._since > GIVE_UP_AFTER:
            raise error
        rest, self._rest = self._rest, min(self._rest * 2, LONGEST_RETRY_DELAY)
        return rest

    def cleared(self) -> None:
        """The database answered."""
        if self._since is not None:
            logger.info("the database answers again after %.1f s", time.monotonic() - self._since)
            self._since = None
