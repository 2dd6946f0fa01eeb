"""Redrive and purge dead letters in batches, each in its own transaction."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from django.db import models

from .. import signals, timing
from ..arguments import checked_id, checked_ids, checked_integer, checked_text, optional_text
from ..conf import get_settings
from ..doorbell import ring_doorbell
from ..exceptions import GroupRequired, MessageTooLarge, UniqueKeyTaken
from ..guard import safe_repr
from ..message import encode_again
from ..signals import send_count_after_commit
from ..store import sqlite as store
from ..store.sqlite.dead_letters import Redelivery
from ..timing import Duration, milliseconds, moment
from ..transactions import after_commit, write_transaction, yield_to_other_writers
from ..types import BulkCount, ErrorCount
from .base import BATCH, M, Verbs, from_rows, get_model, require_queue
from .references import referenced, require_unreferenced

BatchAction = Callable[[Sequence[int]], BulkCount]
"""A redrive or purge of one batch; it returns how many of the ids were dead letters."""

Progress = Callable[[int], object]
"""A function that is called after each batch with the number of messages so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of a queue's dead letters, and the function to call with the progress."""

    limit: int | None = None
    older_than: Duration | None = None
    reason: str | None = None
    error_class: str | None = None
    progress: Progress | None = None


MAX_COUNTED = 100_000
"""Maximum dead letters that count_by_error() reads, so that its cost is bounded."""


class DeadLetterVerbs(Verbs[M]):
    """Redrive and purge dead letters in batches of 1,000, each in its own transaction."""

    def matching(
        self,
        queue: str,
        *,
        ids: Iterable[int] | None = None,
        older_than: Duration | None = None,
        reason: str | None = None,
        error_class: str | None = None,
    ) -> models.QuerySet[M]:
        """Return the dead letters of `queue`, those with `ids` if given, to count or show them.

        The other arguments are as in redrive_queue() and purge_queue(). Raises QueueNotFound.
        """
        queue = checked_text(queue, "queue")
        reason = optional_text(reason, "reason")
        error_class = optional_text(error_class, "error_class")
        require_queue(self.connection, queue)
        letters = self.using(self.database).filter(queue=queue)
        if ids is not None:
            letters = letters.filter(pk__in=checked_ids(ids))
        if older_than is not None:
            letters = letters.filter(finished_at__lte=moment(_finished_before(older_than)))
        if reason is not None:
            letters = letters.filter(dead_letter_reason=reason)
        if error_class is not None:
            letters = letters.filter(error_class=error_class)
        return letters

    def count_by_error(self, queue: str | None = None, *, limit: int = 20) -> list[ErrorCount]:
        """Count the dead letters of `queue`, or of all queues, by the class of their last error.

        The most frequent come first, at most `limit` of them. Dead letters without a recorded error
        are counted by their reason. Only the newest 100,000 are counted. Raises QueueNotFound.
        """
        queue = optional_text(queue, "queue")
        limit = checked_integer(limit, "limit")
        connection = self.connection
        if queue is None:
            rows = store.dead_letters.COUNT_BY_ERROR.all(
                connection, newest=MAX_COUNTED, limit=limit
            )
        else:
            require_queue(connection, queue)
            rows = store.dead_letters.COUNT_BY_ERROR_IN_QUEUE.all(
                connection, queue=queue, newest=MAX_COUNTED, limit=limit
            )
        return [ErrorCount(*row) for row in rows]

    def redrive(
        self,
        ids: Iterable[int],
        *,
        into: str | None = None,
        rate: float | None = None,
        delay: Duration = 0,
    ) -> BulkCount:
        """Make these dead letters active again, with a delivery count of 0; return their number.

        They keep their ids and their places in their groups. With `into` they move to the end of
        that queue and get new ids. `rate` (messages per second) spreads the deliveries; the first
        is due after `delay` (timedelta or seconds).

        Ids of other messages are ignored, so repeating the call redrives nothing twice. A dead
        letter is kept if an unfinished message of the queue has its `unique_key`, and the result's
        `duplicates` lists it. With `into`, dead letters that a foreign key of the project refers to
        are kept as well, and the result's `referenced` lists them.

        Raises QueueNotFound and GroupRequired for the queue `into`.
        """
        return self._in_batches(ids, self._redrive_action(into, rate, milliseconds(delay, "delay")))

    def redrive_queue(  # noqa: PLR0913 - keywords that select and spread
        self,
        queue: str,
        *,
        limit: int | None = None,
        older_than: Duration | None = None,
        reason: str | None = None,
        error_class: str | None = None,
        into: str | None = None,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> BulkCount:
        """Redrive the dead letters of `queue`, oldest first; return their number.

        `limit` is the maximum number to redrive. `older_than` (timedelta or seconds) selects those
        that have been dead letters for at least that long, `reason` those with this reason, and
        `error_class` those whose last error was of this class, without its module, such as
        "ConnectionRefusedError". `into` and `rate` are as in redrive(). Messages that become dead
        letters during the call are not redriven. `progress` is called after each batch with the
        number so far.

        Raises QueueNotFound, also for the queue `into`, and GroupRequired for that queue.
        """
        selection = Selection(
            limit=limit,
            older_than=older_than,
            reason=reason,
            error_class=error_class,
            progress=progress,
        )
        return self._in_queue(queue, selection, self._redrive_action(into, rate))

    def redrive_with(self, id: int, data: Any) -> Any:
        """Redrive a dead letter with `data` as its body; return the new message.

        Returns None if there is no dead letter `id`, so repeating the call stores nothing twice.
        The new message has the dead letter's queue, group, other options and `errors`, and the
        property `redriven_from` with its id. It is at the end of its group. The dead letter is
        deleted in the same transaction.

        `data` is as in enqueue(). The content type is kept if it fits the data.

        Raises MessageTooLarge, a ValueError or TypeError for invalid data, UniqueKeyTaken if an
        unfinished message of the queue has its `unique_key`, and MessageReferenced if a foreign key
        of the project refers to the dead letter.
        """
        id, settings, letters = checked_id(id), get_settings(), self.using(self.database)
        types = letters.filter(pk=id).values_list("content_type", flat=True)
        body, content_type = encode_again(data, types.first(), settings.encoder)
        if len(body) > settings.max_body_bytes:
            raise MessageTooLarge(len(body), settings.max_body_bytes)
        with write_transaction(self.database) as (connection, now):
            letter: Any = letters.only("queue", "unique_key").filter(pk=id).first()
            if letter is None:
                return None
            require_unreferenced(connection, id, "redrive_with")
            new_id = store.dead_letters.COPY_EDITED.value(
                connection, id=id, body=body, content_type=content_type, now=now
            )
            if new_id is None:
                raise _key_taken(connection, letter)
            store.dead_letters.purge(connection, [id])
            send_count_after_commit(
                self.database, signals.messages_redriven, self.model, BulkCount(1)
            )
            after_commit(self.database, partial(ring_doorbell, self.database))
            return get_model("Message").objects.db_manager(self.database).get(pk=new_id)

    def purge(self, ids: Iterable[int]) -> BulkCount:
        """Delete these dead letters; return their number. Other messages are ignored.

        Dead letters that a foreign key of the project refers to are kept, and the result's
        `referenced` lists them.
        """
        return self._in_batches(ids, self._purge_batch)

    def purge_queue(
        self,
        queue: str,
        *,
        limit: int | None = None,
        older_than: Duration | None = None,
        reason: str | None = None,
        error_class: str | None = None,
        everything: bool = False,
        progress: Progress | None = None,
    ) -> BulkCount:
        """Delete dead letters of `queue`, oldest first; return their number.

        Requires `limit`, `older_than`, `reason`, `error_class` or `everything=True`. The arguments
        are those of redrive_queue(), and the result is that of purge(). Raises QueueNotFound.
        """
        selection = Selection(
            limit=limit,
            older_than=older_than,
            reason=reason,
            error_class=error_class,
            progress=progress,
        )
        if not everything and replace(selection, progress=None) == Selection():
            raise ValueError(
                "purge_queue() deletes messages: pass limit, older_than, reason, error_class or "
                "everything=True."
            )
        return self._in_queue(queue, selection, self._purge_batch)

    def peek(self, queue: str, *, limit: int = 10) -> list[M]:
        """Return the oldest dead letters of `queue`. Raises QueueNotFound."""
        queue = checked_text(queue, "queue")
        limit = checked_integer(limit, "limit")
        connection = self.connection
        rows = store.find.peek_dead_letters(connection, queue, limit=limit)
        if not rows:
            require_queue(connection, queue)
        return from_rows(self.model, self.database, rows)

    def _in_batches(self, ids: Iterable[int], action: BatchAction) -> BulkCount:
        unique_ids = checked_ids(ids)  # a repeated id would be copied twice
        done = BulkCount()
        for start in range(0, len(unique_ids), BATCH):
            with yield_to_other_writers(self.database):
                done = done.plus(action(unique_ids[start : start + BATCH]))
        return done

    def _in_queue(self, queue: str, selection: Selection, action: BatchAction) -> BulkCount:
        queue = checked_text(queue, "queue")
        reason = optional_text(selection.reason, "reason")
        error_class = optional_text(selection.error_class, "error_class")
        limit = selection.limit
        if limit is not None:
            limit = checked_integer(limit, "limit")
        finished_before = self._last_finished_at(queue, selection.older_than)
        done, last = BulkCount(), (-1, 0)
        while limit is None or done < limit:
            batch_size = BATCH if limit is None else min(BATCH, limit - done)
            batch = store.dead_letters.NEXT_BATCH.all(
                self.connection,
                queue=queue,
                finished_before=finished_before,
                after_finished_at=last[0],
                after_id=last[1],
                reason=reason,
                error_class=error_class,
                limit=batch_size,
            )
            if batch:
                last = batch[-1]
                with yield_to_other_writers(self.database):
                    done = done.plus(action([id for _, id in batch]))
                if selection.progress is not None:
                    selection.progress(done)
            if len(batch) < batch_size:
                break
        return done

    def _last_finished_at(self, queue: str, older_than: Duration | None) -> int:
        """Return the time up to which dead letters are selected.

        Without `older_than`, it is the time of the newest, so messages that become dead letters
        during the call are not selected.
        """
        finished_before = None if older_than is None else _finished_before(older_than)
        require_queue(self.connection, queue)
        if finished_before is not None:
            return finished_before
        return store.dead_letters.NEWEST_FINISHED_AT.value(self.connection, queue=queue) or 0

    def _redrive_action(
        self, into: str | None, rate: float | None, delay_ms: int = 0
    ) -> BatchAction:
        """Return a function that redrives a batch; the rate continues from batch to batch."""
        into = optional_text(into, "into")
        if into is not None:
            require_queue(self.connection, into)
        interval_ms = 0.0 if rate is None else 1000 / _checked_rate(rate)
        numbers = count()

        def redrive_batch(ids: Sequence[int]) -> BulkCount:
            return self._redrive_batch(
                [Redelivery(id, delay_ms + int(next(numbers) * interval_ms)) for id in ids], into
            )

        return redrive_batch

    def _redrive_batch(self, redeliveries: Sequence[Redelivery], into: str | None) -> BulkCount:
        with write_transaction(self.database) as (connection, now):
            if into is None:
                redriven = _redrive_in_place(connection, redeliveries, now=now)
            else:
                redriven = self._redrive_into(connection, redeliveries, into, now=now)
            send_count_after_commit(self.database, signals.messages_redriven, self.model, redriven)
            after_commit(self.database, partial(ring_doorbell, self.database))
        return redriven

    def _redrive_into(
        self, connection: Any, redeliveries: Sequence[Redelivery], into: str, *, now: int
    ) -> BulkCount:
        ids = [redelivery.id for redelivery in redeliveries]
        referenced_ids = self._referenced(connection, ids)
        ids = [id for id in ids if id not in referenced_ids]
        duplicates = store.dead_letters.duplicates_in_queue(connection, ids, into)
        kept = {*referenced_ids, *duplicates}
        redeliveries = [redelivery for redelivery in redeliveries if redelivery.id not in kept]
        ids = [redelivery.id for redelivery in redeliveries]
        ungrouped = store.dead_letters.ungrouped_dead_letter(connection, ids, into)
        if ungrouped is not None:
            raise GroupRequired(into, dead_letter=ungrouped)
        redriven = store.dead_letters.redrive_into(connection, redeliveries, into, now=now)
        return BulkCount(redriven, referenced_ids, duplicates)

    def _purge_batch(self, ids: Sequence[int]) -> BulkCount:
        with write_transaction(self.database) as (connection, _):
            kept = self._referenced(connection, ids)
            purged = store.dead_letters.purge(connection, [id for id in ids if id not in kept])
            send_count_after_commit(self.database, signals.messages_purged, self.model, purged)
        return BulkCount(purged, kept)

    def _referenced(self, connection: Any, ids: Sequence[int]) -> tuple[int, ...]:
        """Return the ids of those dead letters that cannot be deleted."""
        ids = sorted(referenced(connection, ids))
        letters = self.using(self.database).filter(pk__in=ids).order_by("pk")
        return tuple(letters.values_list("pk", flat=True)) if ids else ()


def _redrive_in_place(
    connection: Any, redeliveries: Sequence[Redelivery], *, now: int
) -> BulkCount:
    redriven = store.dead_letters.redrive(connection, redeliveries, now=now)
    if redriven == len(redeliveries):
        return BulkCount(redriven)
    ids = [redelivery.id for redelivery in redeliveries]
    return BulkCount(redriven, duplicates=store.dead_letters.skipped_duplicates(connection, ids))


def _key_taken(connection: Any, letter: Any) -> UniqueKeyTaken:
    (holder,) = store.duplicates.holders(connection, letter.queue, [letter.unique_key])
    return UniqueKeyTaken(letter.pk, letter.unique_key, holder.id)


def _finished_before(older_than: Duration) -> int:
    return timing.now_ms() - milliseconds(older_than, "older_than", minimum=1)


def _checked_rate(rate: float) -> float:
    """Return the rate; raise ValueError below one message per hour, which is likely a mistake."""
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f"rate must be a number of messages per second, not {safe_repr(rate)}.")
    if not 1 / 3600 <= rate <= 1_000_000:  # NaN fails this as well
        raise ValueError(
            f"rate must be between 1/3600 and 1,000,000 messages per second, not {safe_repr(rate)}."
        )
    return rate
