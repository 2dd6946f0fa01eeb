"""A durable message queue in the SQLite database a Django project already has."""

from .exceptions import (
    GroupRequired,
    LockLost,
    MessageTooLarge,
    MqliteError,
    PriorityRefused,
    QueueNotFound,
    Reject,
    Retry,
    SchemaVersionMismatch,
    TransactionRefused,
)
from .handlers import handler
from .shortcuts import enqueue

__version__ = "0.1.0"

__all__ = [
    "GroupRequired",
    "LockLost",
    "MessageTooLarge",
    "MqliteError",
    "PriorityRefused",
    "QueueNotFound",
    "Reject",
    "Retry",
    "SchemaVersionMismatch",
    "TransactionRefused",
    "enqueue",
    "handler",
]
