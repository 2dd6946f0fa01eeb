"""Redrive and purge."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from django.db import models
from django.db.models import F, Func, Value
from django.db.models.functions import Cast

from .. import signals, timing
from ..doorbell import ring_doorbell
from ..exceptions import GroupRequired
from ..store import sqlite as store
from ..timing import Duration, milliseconds, moment
from ..transactions import after_commit, write_transaction, yield_to_other_writers
from ..types import BulkCount, State, clamped
from .base import BATCH, M, Verbs, from_rows, positive, require_queue

# What a foreign key deletes or sets to NULL itself is no obstacle. Read from the file: a model
# need not exist for every table.
REFERENCES = """
    SELECT t.name, f."from"
      FROM sqlite_master AS t, pragma_foreign_key_list(t.name) AS f
     WHERE t.type = 'table' AND lower(f."table") = 'mqlite_messages'
       AND f.on_delete IN ('NO ACTION', 'RESTRICT')
"""


SHOWN = 20


def named(ids: Sequence[int]) -> str:
    """Return the ids for people: the first 20, and how many more there are."""
    text = ", ".join(f"#{id}" for id in ids[:SHOWN])
    return text if len(ids) <= SHOWN else f"{text} (+{len(ids) - SHOWN})"


def referenced(connection: Any, ids: Collection[int]) -> set[int]:
    """Return those of these messages that a row of another table refers to.

    Asked before deleting, because Django's foreign keys are deferred: SQLite would only refuse the
    commit, which may be the caller's, and not name the message.
    """
    found: set[int] = set()
    quoted = connection.ops.quote_name
    with connection.cursor() as cursor:
        cursor.execute(REFERENCES)
        for table, column in cursor.fetchall():
            cursor.execute(
                "SELECT value FROM json_each(%s)"  # noqa: S608 - names from the schema, quoted
                f" WHERE value IN (SELECT {quoted(column)} FROM {quoted(table)})",
                [json.dumps(list(ids))],
            )
            found.update(id for (id,) in cursor.fetchall())
    return found


Act = Callable[[Sequence[int]], BulkCount]
"""What is done to a batch; it answers how many of them were still dead letters."""

Progress = Callable[[int], object]
"""Told how many there were so far, after each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Which dead letters of a queue, and who hears of it."""

    limit: int | None
    older_than: Duration | None
    reason: str | None
    progress: Progress | None


def in_batches(manager: Verbs[Any], ids: Iterable[int], act: Act) -> BulkCount:
    """`act` on these; how many it has acted on."""
    wanted = list(dict.fromkeys(ids))  # an id said twice would be copied twice
    done = BulkCount()
    for start in range(0, len(wanted), BATCH):
        with yield_to_other_writers(manager.database):
            done = done.plus(act(wanted[start : start + BATCH]))
    return done


def over_queue(manager: Verbs[Any], queue: str, act: Act, over: Over) -> BulkCount:
    """`act` on those of `queue`, the longest dead first; how many it has acted on."""
    if over.limit is not None:
        positive(over.limit, "limit")
    finished_before = _finished_before(manager.connection, queue, over.older_than)
    done, after = BulkCount(), store.dead_letters.Death(-1, 0)
    while over.limit is None or done < over.limit:
        wanted = BATCH if over.limit is None else min(BATCH, over.limit - done)
        deaths = store.dead_letters.deaths(
            manager.connection,
            queue,
            finished_before=finished_before,
            after=after,
            reason=over.reason,
            limit=wanted,
        )
        if deaths:
            after = deaths[-1]
            with yield_to_other_writers(manager.database):
                done = done.plus(act([death.id for death in deaths]))
            if over.progress is not None:
                over.progress(done)
        if len(deaths) < wanted:
            break
    return done


def _finished_before(connection: Any, queue: str, older_than: Duration | None) -> int:
    """Later deaths are not meant: by age, or because they come while this one is at work."""
    age = None if older_than is None else milliseconds(older_than, "older_than", least=1)
    require_queue(connection, queue)
    if age is None:
        return store.dead_letters.last_death(connection, queue) or 0
    return timing.now_ms() - age


class DeadLetterManager(Verbs[M]):
    """Redrive and purge. Each batch of a thousand is a transaction of its own."""

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().filter(state=State.DEAD_LETTERED)

    def matching(
        self,
        queue: str,
        *,
        ids: Iterable[int] | None = None,
        older_than: Duration | None = None,
        reason: str | None = None,
    ) -> models.QuerySet[M]:
        """The dead letters of `queue`, of `ids` if given, to be counted before something is done.

        `older_than` and `reason` as in redrive_queue() and purge_queue(). Raises QueueNotFound.
        """
        require_queue(self.connection, queue)
        found = self.using(self.database).filter(queue=queue)
        if ids is not None:
            found = found.filter(pk__in=set(map(clamped, ids)))
        if older_than is not None:
            died_before = timing.now_ms() - milliseconds(older_than, "older_than", least=1)
            found = found.filter(finished_at__lte=moment(died_before))
        if reason is not None:
            found = found.filter(dead_letter_reason=reason)
        return found

    def with_last_error(self) -> models.QuerySet[M]:
        """The dead letters with `last_error`, the message of the last failed delivery or None.

        For a few of them, chosen by id: each one's `errors` are read.
        """
        message = Func(F("errors"), Value("$[#-1].message"), function="JSON_EXTRACT")
        return self.annotate(last_error=Cast(message, models.TextField()))  # type: ignore[return-value]

    def redrive(
        self,
        ids: Iterable[int],
        *,
        into: str | None = None,
        rate: float | None = None,
        delay: Duration = 0,
    ) -> BulkCount:
        """Put these dead letters back to work, deliveries counted from 0; how many there were.

        They keep their id and with it their place in their group; with `into` they get new ids at
        the end of that queue. `rate` spreads them out, so many a second, the first after `delay`
        (timedelta or seconds). Ids that are no dead letters are passed over, so doing it twice
        redrives once. With `into`, those that a foreign key of the project refers to stay; the
        result's `referenced` names them. Raises QueueNotFound and GroupRequired for `into`.
        """
        return in_batches(self, ids, self._mover(into, rate, milliseconds(delay, "delay")))

    def redrive_queue(
        self,
        queue: str,
        *,
        limit: int | None = None,
        older_than: Duration | None = None,
        reason: str | None = None,
        into: str | None = None,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> BulkCount:
        """Redrive the dead letters of `queue`, the longest dead first; how many there were.

        At most `limit`, and only those that died at least `older_than` (timedelta or seconds) ago,
        of this `reason`; `into` and `rate` as in redrive(). A message that dies again meanwhile is
        not redriven again. After each batch `progress` is called with how many there were so far.
        Raises QueueNotFound, and GroupRequired for the queue `into`.
        """
        over = Over(limit=limit, older_than=older_than, reason=reason, progress=progress)
        return over_queue(self, queue, self._mover(into, rate), over)

    def purge(self, ids: Iterable[int]) -> BulkCount:
        """Delete these dead letters for good; how many there were. Other ids are passed over.

        Those that a foreign key of the project refers to stay; `referenced` of the result names
        them.
        """
        return in_batches(self, ids, self._purge_batch)

    def purge_queue(
        self,
        queue: str,
        *,
        limit: int | None = None,
        older_than: Duration | None = None,
        reason: str | None = None,
        everything: bool = False,
        progress: Progress | None = None,
    ) -> BulkCount:
        """Delete dead letters of `queue` for good, the longest dead first; how many there were.

        Needs a bound, `limit`, `older_than` or `reason`, or `everything=True`. `progress` as in
        redrive_queue(), `referenced` as in purge(). Raises QueueNotFound.
        """
        if limit is None and older_than is None and reason is None and not everything:
            raise ValueError("purge_queue() needs limit=, older_than=, reason= or everything=True")
        over = Over(limit=limit, older_than=older_than, reason=reason, progress=progress)
        return over_queue(self, queue, self._purge_batch, over)

    def peek(self, queue: str, *, limit: int = 10) -> list[M]:
        """The dead letters of `queue`, the longest dead first. Raises QueueNotFound."""
        positive(limit, "limit")
        connection = self.connection
        rows = store.find.peek_dead_letters(connection, queue, limit=limit)
        if not rows:
            require_queue(connection, queue)
        return from_rows(self.model, self.database, rows)

    def _mover(self, into: str | None, rate: float | None, delay_ms: int = 0) -> Act:
        """What redrives a batch; it remembers how far the rate has come."""
        if into is not None:
            require_queue(self.connection, into)
        interval_ms = 0.0 if rate is None else 1000 / _checked_rate(rate)
        place = count()

        def move(ids: Sequence[int]) -> BulkCount:
            dues = [
                store.dead_letters.Due(id, delay_ms + int(next(place) * interval_ms)) for id in ids
            ]
            return self._redrive_batch(dues, into)

        return move

    def _redrive_batch(self, dues: Sequence[store.dead_letters.Due], into: str | None) -> BulkCount:
        alias = self.database
        kept: tuple[int, ...] = ()
        with write_transaction(alias) as (connection, now):
            if into is None:
                moved = store.dead_letters.redrive(connection, dues, now=now)
            else:
                kept = self._referenced(connection, [due.id for due in dues])
                dues = [due for due in dues if due.id not in kept]
                ungrouped = store.dead_letters.ungrouped_dead_letter(connection, dues, into)
                if ungrouped is not None:
                    raise GroupRequired(into, dead_letter=ungrouped)
                moved = store.dead_letters.redrive_into(connection, dues, into, now=now)
            self._tell(signals.messages_redriven, moved)
            after_commit(alias, partial(ring_doorbell, alias))
        return BulkCount(moved, kept)

    def _purge_batch(self, ids: Sequence[int]) -> BulkCount:
        with write_transaction(self.database) as (connection, _):
            kept = self._referenced(connection, ids)
            purged = store.dead_letters.purge(connection, [id for id in ids if id not in kept])
            self._tell(signals.messages_purged, purged)
        return BulkCount(purged, kept)

    def _referenced(self, connection: Any, ids: Sequence[int]) -> tuple[int, ...]:
        """Return those of these that are dead letters and cannot be deleted."""
        ids = sorted(referenced(connection, ids))
        letters = self.using(self.database).filter(pk__in=ids).order_by("pk")
        return tuple(letters.values_list("pk", flat=True)) if ids else ()

    def _tell(self, signal: Any, count: int) -> None:
        if count == 0:
            return
        send = partial(
            signal.send_robust,
            sender=self.model,
            queue=None,
            message_id=None,
            count=count,
            using=self.database,
        )
        after_commit(self.database, send)


def _checked_rate(rate: float) -> float:
    """Messages a second. Less than one an hour is a mistake."""
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f"rate is a number of messages a second, not {rate!r}")
    if not 1 / 3600 <= rate <= 1_000_000:  # NaN fails this as well
        raise ValueError(f"rate must be between 1/3600 and a million a second, not {rate!r}")
    return rate
