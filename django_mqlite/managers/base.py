"""What the managers share."""

from typing import Any, TypeVar

from django.db import connections, models, router

from ..durations import Duration, milliseconds
from ..exceptions import QueueNotFound
from ..schema import check_schema
from ..store.claim import queue_exists
from ..store.queues import queue_names
from ..types import MAX_INTEGER
from .guarded import GuardedQuerySet

M = TypeVar("M", bound=models.Model)

BATCH = 1_000
"""Redrives and purges hold the write lock for so many rows at most."""


class VerbManager(models.Manager[M]):
    """A manager whose verbs run on one database, and which reads from there as well.

    The routers' database for reading may be a replica, in which what a verb has just written is
    not yet there; `using()` chooses it nevertheless.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().using(self.using_alias)

    _queryset_class = GuardedQuerySet

    @property
    def using_alias(self) -> str:
        """The database the verbs run on: db_manager()'s, else the routers' for writing."""
        return self._db or router.db_for_write(self.model)

    @property
    def connection(self) -> Any:
        """The caller's connection to that database, its schema known to be ours."""
        connection = connections[self.using_alias]
        check_schema(connection)
        return connection


def must_exist(connection: Any, queue: str) -> None:
    if not queue_exists(connection, queue):
        raise QueueNotFound(queue, queue_names(connection))


def positive(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {value!r}")
    if not 0 < value <= MAX_INTEGER:
        raise ValueError(f"{name} must be between 1 and {MAX_INTEGER}, not {value}")


def lock_ms(lock_duration: Duration | None) -> int | None:
    """Milliseconds of a lease, or None for the queue's; ValueError, TypeError as they come."""
    return None if lock_duration is None else milliseconds(lock_duration, "lock_duration", least=1)
