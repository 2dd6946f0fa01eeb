"""Delete messages that an operator no longer wants: empty a queue, prune completed messages."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from .. import signals, timing
from ..arguments import checked_integer, checked_text, optional_text
from ..doorbell import ring_doorbell
from ..signals import send_count_after_commit
from ..store import sqlite as store
from ..timing import Duration, milliseconds
from ..transactions import after_commit, write_transaction, yield_to_other_writers
from ..types import BulkCount
from .base import BATCH, M, Verbs, require_queue
from .dead_letters import Progress
from .references import referenced


class DeletionVerbs(Verbs[M]):
    """Empty a queue, and prune completed messages."""

    def empty_queue(
        self, queue: str, *, limit: int | None = None, progress: Progress | None = None
    ) -> BulkCount:
        """Delete the messages of `queue` that wait, and its dead letters; return their number.

        These are the active, scheduled, deferred and dead-lettered messages. A message that is
        being handled is kept: discard it first. Completed messages are kept, too: prune_completed()
        deletes them. Messages that are enqueued during the call are not deleted, nor are those that
        a foreign key of the project refers to, which the result's `referenced` lists.

        `limit` is the maximum number to delete. Each batch of 1,000 is one transaction, and
        `progress` is called after each with the number so far. Raises QueueNotFound.
        """
        queue = checked_text(queue, "queue")
        limit = None if limit is None else checked_integer(limit, "limit")
        require_queue(self.connection, queue)
        newest = store.explain.newest_id(self.connection)
        done = BulkCount()
        while limit is None or done < limit:
            size = BATCH if limit is None else min(BATCH, limit - done)
            with (
                yield_to_other_writers(self.database),
                write_transaction(self.database) as (connection, _),
            ):
                ids = store.deletion.waiting_ids(
                    connection, queue, kept=done.referenced, newest=newest, limit=size
                )
                batch = self._delete_waiting(connection, ids)
            done = done.plus(batch)
            if ids and progress is not None:
                progress(done)
            if len(ids) < size:
                break
        return done

    def _delete_waiting(self, connection: Any, ids: Sequence[int]) -> BulkCount:
        deletable, kept = _deletable(connection, ids)
        count = store.deletion.delete_waiting(connection, deletable) if deletable else 0
        send_count_after_commit(self.database, signals.messages_purged, self.model, count)
        if count:  # a message that arrived in the meantime may be the head of its line now
            after_commit(self.database, partial(ring_doorbell, self.database))
        return BulkCount(count, kept)

    def prune_completed(
        self,
        queue: str | None = None,
        *,
        older_than: Duration | None = None,
        everything: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkCount:
        """Delete completed messages of `queue`, or of all queues; return their number.

        The reaper deletes them when their retention period ends; this deletes them before, with the
        results of tasks. `older_than` (timedelta or seconds) selects those that were completed at
        least that long ago. Requires `older_than`, `limit` or `everything=True`. The oldest of each
        queue go first, at most `limit`. With `dry_run`, nothing is deleted, and the result is the
        number that would be. Messages that a foreign key of the project refers to are kept, and the
        result's `referenced` lists them.

        Each batch of 1,000 is one transaction, and `progress` is called after each with the number
        so far. Raises QueueNotFound.
        """
        queue = optional_text(queue, "queue")
        limit = None if limit is None else checked_integer(limit, "limit")
        if older_than is None and limit is None and not everything:
            raise ValueError(
                "prune_completed() deletes messages: pass older_than, limit or everything=True."
            )
        age_ms = 0 if older_than is None else milliseconds(older_than, "older_than", minimum=1)
        if queue is not None:
            require_queue(self.connection, queue)
        queues = store.queues.queue_names(self.connection) if queue is None else [queue]
        done = BulkCount()
        for batch in self._completed(queues, finished_before=timing.now_ms() - age_ms):
            left = None if limit is None else limit - done
            done = done.plus(self._prune_batch(batch, left, dry_run=dry_run))
            if progress is not None:
                progress(done)
            if done == limit:
                break
        return done

    def _completed(self, queues: Sequence[str], *, finished_before: int) -> Iterator[list[int]]:
        """Yield batches of ids of completed messages, the oldest of each queue first."""
        for queue in queues:
            last = (-1, 0)
            while batch := store.deletion.COMPLETED_BATCH.all(
                self.connection,
                queue=queue,
                finished_before=finished_before,
                after_finished_at=last[0],
                after_id=last[1],
                limit=BATCH,
            ):
                last = batch[-1]
                yield [id for _, id in batch]

    def _prune_batch(self, ids: Sequence[int], limit: int | None, *, dry_run: bool) -> BulkCount:
        if dry_run:
            deletable, kept = _deletable(self.connection, ids)
            return BulkCount(len(deletable[:limit]), kept)
        with (
            yield_to_other_writers(self.database),
            write_transaction(self.database) as (connection, _),
        ):
            deletable, kept = _deletable(connection, ids)
            return BulkCount(store.retention.prune_completed(connection, deletable[:limit]), kept)


def _deletable(connection: Any, ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the ids of messages that can be deleted, and those that a foreign key refers to."""
    kept = referenced(connection, ids) if ids else set()
    return [id for id in ids if id not in kept], sorted(kept)
