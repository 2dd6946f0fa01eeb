"""What the managers share."""

from typing import Any, TypeVar

from django.db import models, router

from ..exceptions import QueueNotFound
from ..store.claim import queue_exists
from ..store.queues import queue_names

M = TypeVar("M", bound=models.Model)


class VerbManager(models.Manager[M]):
    """A manager whose verbs run on one database."""

    @property
    def using_alias(self) -> str:
        """The database the verbs run on: db_manager()'s, else the routers' for writing."""
        return self._db or router.db_for_write(self.model)


def must_exist(connection: Any, queue: str) -> None:
    if not queue_exists(connection, queue):
        raise QueueNotFound(queue, queue_names(connection))


def positive(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {value!r}")
    if not 0 < value < 2**63:
        raise ValueError(f"{name} must be at least 1, not {value}")
