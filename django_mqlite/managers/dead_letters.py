"""Redrive and purge."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import connections, models, transaction

from .. import clock, signals
from ..doorbell import ring
from ..durations import Duration, milliseconds
from ..store import browse, redrive
from ..transactions import write_transaction
from ..types import State
from .base import VerbManager, must_exist, positive
from .rows import from_rows

if TYPE_CHECKING:
    from ..models import DeadLetter

BATCH = 1_000
"""Redrives and purges hold the write lock for so many rows at most."""


class DeadLetterManager(VerbManager["DeadLetter"]):
    """Redrive and purge. Each batch of a thousand is a transaction of its own."""

    def get_queryset(self) -> models.QuerySet["DeadLetter"]:
        return super().get_queryset().filter(state=State.DEAD_LETTERED)

    def redrive(self, ids: Iterable[int]) -> int:
        """Put these dead letters back to work, deliveries counted from 0; how many there were.

        They keep their id and with it their place in their group. Other ids are passed over, so
        doing it twice redrives once.
        """
        return sum(self._redrive_batch(batch) for batch in _batches(ids))

    def redrive_queue(
        self, queue: str, *, limit: int | None = None, older_than: Duration | None = None
    ) -> int:
        """Redrive the dead letters of `queue`, the longest dead first; how many there were.

        At most `limit`, and only those that died at least `older_than` (timedelta or seconds) ago.
        A message that dies again meanwhile is not redriven again. Raises QueueNotFound.
        """
        return self._over_queue(queue, self._redrive_batch, limit, older_than)

    def purge(self, ids: Iterable[int]) -> int:
        """Delete these dead letters for good; how many there were. Other ids are passed over."""
        return sum(self._purge_batch(batch) for batch in _batches(ids))

    def purge_queue(
        self,
        queue: str,
        *,
        limit: int | None = None,
        older_than: Duration | None = None,
        everything: bool = False,
    ) -> int:
        """Delete dead letters of `queue` for good, the longest dead first; how many there were.

        Needs a bound, `limit` or `older_than`, or `everything=True`. Raises QueueNotFound.
        """
        if limit is None and older_than is None and not everything:
            raise ValueError("purge_queue() needs limit=, older_than= or everything=True")
        return self._over_queue(queue, self._purge_batch, limit, older_than)

    def peek(self, queue: str, *, limit: int = 10) -> list["DeadLetter"]:
        """The dead letters of `queue`, the longest dead first. Raises QueueNotFound."""
        positive(limit, "limit")
        connection = connections[self.using_alias]
        rows = browse.peek_dead_letters(connection, queue, limit=limit)
        if not rows:
            must_exist(connection, queue)
        return from_rows(self.model, self.using_alias, rows)

    def _over_queue(
        self,
        queue: str,
        act: Callable[[Sequence[int]], int],
        limit: int | None,
        older_than: Duration | None,
    ) -> int:
        if limit is not None:
            positive(limit, "limit")
        age = 0 if older_than is None else milliseconds(older_than, "older_than")
        connection = connections[self.using_alias]
        must_exist(connection, queue)
        finished_before = clock.now_ms() - age
        done = 0
        while limit is None or done < limit:
            wanted = BATCH if limit is None else min(BATCH, limit - done)
            ids = redrive.dead_letter_ids(
                connection, queue, finished_before=finished_before, limit=wanted
            )
            done += act(ids)
            if len(ids) < wanted:
                break
        return done

    def _redrive_batch(self, ids: Sequence[int]) -> int:
        alias = self.using_alias
        with write_transaction(alias) as connection:
            count = redrive.redrive(connection, ids, now=clock.now_ms())
            self._tell(signals.messages_redriven, count)
            transaction.on_commit(partial(ring, alias), using=alias, robust=True)
        return count

    def _purge_batch(self, ids: Sequence[int]) -> int:
        with write_transaction(self.using_alias) as connection:
            count = redrive.purge(connection, ids)
            self._tell(signals.messages_purged, count)
        return count

    def _tell(self, signal: Any, count: int) -> None:
        send = partial(signal.send_robust, sender=self.model, count=count, using=self.using_alias)
        transaction.on_commit(send, using=self.using_alias, robust=True)


def _batches(ids: Iterable[int]) -> Iterator[list[int]]:
    wanted = list(ids)
    for start in range(0, len(wanted), BATCH):
        yield wanted[start : start + BATCH]
