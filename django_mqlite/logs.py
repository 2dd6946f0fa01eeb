"""Logging of workers, and a filter that adds the current message to log records."""

import logging
import os
import sys
from contextvars import ContextVar
from typing import Any, NamedTuple, Self


class CurrentMessage(NamedTuple):
    """The message that is being handled in this thread or task."""

    queue: str | None = None
    id: int | None = None
    message_id: str | None = None

    @classmethod
    def of(cls, message: Any) -> Self:
        """Return the identifiers of the message."""
        return cls(message.queue, message.pk, message.message_id)


current_message: ContextVar[CurrentMessage | None] = ContextVar("current_message", default=None)


class MessageFilter(logging.Filter):
    """Add `queue`, `id` and `message_id` of the current message to every record.

    They are None outside a handler. No record is dropped. Add the filter to LOGGING,
    `{"filters": {"mqlite": {"()": "django_mqlite.logs.MessageFilter"}}, …}`, and in the log
    handlers whose format shows these attributes.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = current_message.get() or CurrentMessage()
        for name, value in message._asdict().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def configure_default_logging() -> None:
    """Log to standard error, unless the project has configured a handler or a level.

    A worker that prints nothing looks dead. Calling this again changes nothing.
    """
    logger = logging.getLogger("django_mqlite")
    if logger.level == logging.NOTSET and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("{asctime} {levelname} {message}", style="{"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def flush_streams() -> None:
    """Flush stdout and stderr before the process exits; discard what cannot be written.

    Otherwise, a reader that has ended or a full disk would change the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
