"""Logging of workers, and a filter that adds the current message to log records."""

import logging
from contextvars import ContextVar

current_message: ContextVar[tuple[str, int] | None] = ContextVar("current_message", default=None)
"""Queue and sequence number of the message that is being handled in this thread or task."""


class MessageFilter(logging.Filter):
    """Gives every record `queue` and `message_id`, None outside a handler; lets all of them pass.

    In LOGGING: {"filters": {"mqlite": {"()": "django_mqlite.logs.MessageFilter"}}, …}, named by the
    handlers whose format shows them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        queue, message_id = current_message.get() or (None, None)
        for name, value in (("queue", queue), ("message_id", message_id)):
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def configure_default_logging() -> None:
    """Tell on standard error what a worker does, where the project says nothing about its logs.

    A worker that says nothing when it starts looks dead. Calling it again changes nothing.
    """
    logger = logging.getLogger("django_mqlite")
    if logger.level == logging.NOTSET and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("{asctime} {levelname} {message}", style="{"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
