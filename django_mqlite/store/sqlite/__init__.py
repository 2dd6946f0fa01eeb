"""The queue's SQL and invariants on SQLite, one module per subject.

Every function takes a connection (anything with Django's `cursor()`) and the time, and does one
whole thing. Which connection, when, and in which transaction is decided by the verbs.
"""

from . import (
    base,
    claim,
    database_file,
    dead_letters,
    enqueue,
    explain,
    find,
    leases,
    operations,
    queues,
    retention,
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
    "enqueue",
    "explain",
    "find",
    "leases",
    "operations",
    "queues",
    "retention",
    "schema",
    "settle",
    "sweeps",
    "topics",
    "workers",
]
