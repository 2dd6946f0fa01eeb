"""The queue's SQL and invariants on SQLite, one module per subject.

Every function takes a connection (any object with Django's `cursor()`) and the time, and performs
one complete operation. The verbs choose the connection, the time and the transaction.
"""

from . import (
    base,
    claim,
    database_file,
    dead_letters,
    deletion,
    duplicates,
    enqueue,
    explain,
    find,
    keys,
    leases,
    limits,
    operations,
    queues,
    retention,
    schedules,
    schema,
    settle,
    sweeps,
    topics,
    workers,
)

__all__ = [
    "base",
    "claim",
    "database_file",
    "dead_letters",
    "deletion",
    "duplicates",
    "enqueue",
    "explain",
    "find",
    "keys",
    "leases",
    "limits",
    "operations",
    "queues",
    "retention",
    "schedules",
    "schema",
    "settle",
    "sweeps",
    "topics",
    "workers",
]
