"""Redrive and purge."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import F, Func, Value
from django.db.models.functions import Cast

from .. import clock, signals
from ..doorbell import ring
from ..durations import Duration, milliseconds
from ..exceptions import GroupRequired
from ..fields import moment
from ..references import referenced
from ..store import browse
from ..store import redrive as store
from ..transactions import after_commit, write_transaction
from ..types import BulkCount, State, clamped
from .base import VerbManager, must_exist, positive
from .batches import Act, Over, Progress, in_batches, over_queue
from .rows import from_rows

if TYPE_CHECKING:
    from ..models import DeadLetter


class DeadLetterManager(VerbManager["DeadLetter"]):
    """Redrive and purge. Each batch of a thousand is a transaction of its own."""

    def get_queryset(self) -> models.QuerySet["DeadLetter"]:
        return super().get_queryset().filter(state=State.DEAD_LETTERED)

    def matching(
        self,
        queue: str,
        *,
        ids: Iterable[int] | None = None,
        older_than: Duration | None = None,
        reason: str | None = None,
    ) -> models.QuerySet["DeadLetter"]:
        """The dead letters of `queue`, of `ids` if given, to be counted before something is done.

        `older_than` and `reason` as in redrive_queue() and purge_queue(). Raises QueueNotFound.
        """
        must_exist(self.connection, queue)
        found = self.using(self.using_alias).filter(queue=queue)
        if ids is not None:
            found = found.filter(pk__in=set(map(clamped, ids)))
        if older_than is not None:
            died_before = clock.now_ms() - milliseconds(older_than, "older_than", least=1)
            found = found.filter(finished_at__lte=moment(died_before))
        if reason is not None:
            found = found.filter(dead_letter_reason=reason)
        return found

    def with_last_error(self) -> models.QuerySet["DeadLetter"]:
        """The dead letters with `last_error`, the message of the last failed delivery or None.

        For a few of them, chosen by id: each one's `errors` are read.
        """
        message = Func(F("errors"), Value("$[#-1].message"), function="JSON_EXTRACT")
        return self.annotate(last_error=Cast(message, models.TextField()))

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

    def peek(self, queue: str, *, limit: int = 10) -> list["DeadLetter"]:
        """The dead letters of `queue`, the longest dead first. Raises QueueNotFound."""
        positive(limit, "limit")
        connection = self.connection
        rows = browse.peek_dead_letters(connection, queue, limit=limit)
        if not rows:
            must_exist(connection, queue)
        return from_rows(self.model, self.using_alias, rows)

    def _mover(self, into: str | None, rate: float | None, delay_ms: int = 0) -> Act:
        """What redrives a batch; it remembers how far the rate has come."""
        if into is not None:
            must_exist(self.connection, into)
        interval_ms = 0.0 if rate is None else 1000 / _checked_rate(rate)
        place = count()

        def move(ids: Sequence[int]) -> BulkCount:
            dues = [store.Due(id, delay_ms + int(next(place) * interval_ms)) for id in ids]
            return self._redrive_batch(dues, into)

        return move

    def _redrive_batch(self, dues: Sequence[store.Due], into: str | None) -> BulkCount:
        alias = self.using_alias
        kept: tuple[int, ...] = ()
        with write_transaction(alias) as connection:
            now = clock.now_ms()
            if into is None:
                moved = store.redrive(connection, dues, now=now)
            else:
                kept = self._referenced(connection, [due.id for due in dues])
                dues = [due for due in dues if due.id not in kept]
                ungrouped = store.ungrouped_dead_letter(connection, dues, into)
                if ungrouped is not None:
                    raise GroupRequired(into, dead_letter=ungrouped)
                moved = store.redrive_into(connection, dues, into, now=now)
            self._tell(signals.messages_redriven, moved)
            after_commit(alias, partial(ring, alias))
        return BulkCount(moved, kept)

    def _purge_batch(self, ids: Sequence[int]) -> BulkCount:
        with write_transaction(self.using_alias) as connection:
            kept = self._referenced(connection, ids)
            purged = store.purge(connection, [id for id in ids if id not in kept])
            self._tell(signals.messages_purged, purged)
        return BulkCount(purged, kept)

    def _referenced(self, connection: Any, ids: Sequence[int]) -> tuple[int, ...]:
        """Return those of these that are dead letters and cannot be deleted."""
        ids = sorted(referenced(connection, ids))
        letters = self.using(self.using_alias).filter(pk__in=ids).order_by("pk")
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
            using=self.using_alias,
        )
        after_commit(self.using_alias, send)


def _checked_rate(rate: float) -> float:
    """Messages a second. Less than one an hour is a mistake."""
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f"rate is a number of messages a second, not {rate!r}")
    if not 1 / 3600 <= rate <= 1_000_000:  # NaN fails this as well
        raise ValueError(f"rate must be between 1/3600 and a million a second, not {rate!r}")
    return rate
