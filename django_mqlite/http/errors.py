"""Errors on the wire: a status, a code and a sentence for each exception."""

from collections.abc import Mapping

from django.core.exceptions import ImproperlyConfigured
from django.db import Error

from ..exceptions import (
    DuplicateConflict,
    GroupRequired,
    LockLost,
    MessageReferenced,
    MessageTooLarge,
    MqliteError,
    NameConflict,
    PriorityRefused,
    QueueNotDeletable,
    QueueNotFound,
    TopicNotFound,
)
from ..guard import get_logger

logger = get_logger("django_mqlite.http")


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message
        super().__init__(message)


STATUS_AND_CODE: Mapping[type[Exception], tuple[int, str]] = {
    QueueNotFound: (404, "not_found"),
    TopicNotFound: (404, "not_found"),
    DuplicateConflict: (409, "already_exists"),
    NameConflict: (409, "name_conflict"),
    LockLost: (409, "lock_lost"),
    GroupRequired: (400, "group_required"),
    MessageTooLarge: (413, "message_too_large"),
    PriorityRefused: (400, "invalid_argument"),
    QueueNotDeletable: (409, "failed_precondition"),
    MessageReferenced: (409, "failed_precondition"),
}


def invalid_argument(message: str) -> Refusal:
    """Return the refusal of a request that is wrong."""
    return Refusal(400, "invalid_argument", message)


def refusal_of(error: Exception) -> Refusal:
    """Return the refusal for an exception of a verb; log it if the client cannot have caused it."""
    if isinstance(error, Refusal):
        return error
    if type(error) in STATUS_AND_CODE:
        status, code = STATUS_AND_CODE[type(error)]
        return Refusal(status, code, str(error))
    if isinstance(error, ValueError):
        return invalid_argument(str(error))
    logger.error("a request failed: %s", type(error).__name__, exc_info=error)
    if isinstance(error, Error):
        return Refusal(500, "internal", f"The database failed: {error}.")
    if isinstance(error, MqliteError | ImproperlyConfigured):
        return Refusal(500, "internal", str(error))
    return Refusal(500, "internal", "The broker failed; its log has the details.")
