"""A durable message queue in the SQLite database a Django project already has."""

from .exceptions import (
    AccessKeyExists,
    AccessKeyNotFound,
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
    Reject,
    Retry,
    ScheduleNotFound,
    SchemaVersionMismatch,
    TopicNotFound,
    TransactionRefused,
    UniqueKeyTaken,
)
from .handlers import handler
from .message import Draft
from .recurring import periodic
from .shortcuts import aenqueue, aenqueue_many, apublish, enqueue, enqueue_many, publish

__version__ = "0.1.0"

__all__ = [
    "AccessKeyExists",
    "AccessKeyNotFound",
    "Draft",
    "DuplicateConflict",
    "GroupRequired",
    "LockLost",
    "MessageReferenced",
    "MessageTooLarge",
    "MqliteError",
    "NameConflict",
    "PriorityRefused",
    "QueueNotDeletable",
    "QueueNotFound",
    "Reject",
    "Retry",
    "ScheduleNotFound",
    "SchemaVersionMismatch",
    "TopicNotFound",
    "TransactionRefused",
    "UniqueKeyTaken",
    "aenqueue",
    "aenqueue_many",
    "apublish",
    "enqueue",
    "enqueue_many",
    "handler",
    "periodic",
    "publish",
]
