"""A long deed in short transactions, over as many requests as it takes."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from django.core.exceptions import BadRequest
from django.db.models import Max, Q, QuerySet
from django.http import HttpRequest

from .. import timing
from ..models import DeadLetter, Message, Queue
from ..names import NAME
from ..timing import epoch_ms
from ..transactions import write_transaction, yield_to_other_writers
from ..verbs.base import BATCH
from .bulk_verbs import BulkVerb
from .log import log, log_many

SLICE = 2.0
"""Seconds of one request: short enough to see the progress move and to stop it."""


@dataclass(kw_only=True)
class Run:
    """How far it has come; travels from request to request in the form.

    Whoever could forge it may do all that it can make happen, so it is only checked, not signed.
    `until` keeps a letter that is redriven and dies again out of it.
    """

    total: int
    until: int
    started: int
    done: int = 0
    kept: int = 0
    queue: str = ""
    since: int = 0
    after: int = 0

    @classmethod
    def of(cls, total: int) -> Self:
        """One that is about to begin. Where the clock stepped back since, the last death counts."""
        now = timing.now_ms()
        died = DeadLetter.objects.aggregate(last=Max("finished_at"))["last"]
        return cls(total=total, until=max(now, epoch_ms(died) if died else 0), started=now)

    @classmethod
    def read(cls, posted: Mapping[str, Any]) -> Self:
        """As posted; BadRequest for what hidden() has not written."""
        queue = posted.get("run_queue", "")
        try:
            numbers = {
                name: int(posted[f"run_{name}"])
                for name in ("total", "until", "started", "done", "kept", "since", "after")
            }
        except (KeyError, ValueError) as error:
            raise BadRequest("the form is not one of ours") from error
        if not all(0 <= number < 2**53 for number in numbers.values()):
            raise BadRequest("the form is not one of ours")
        return cls(queue=queue if NAME.fullmatch(queue) else "", **numbers)

    def hidden(self) -> list[tuple[str, Any]]:
        """The fields of a form that goes on with it."""
        return [(f"run_{name}", value) for name, value in asdict(self).items()]

    @property
    def is_over(self) -> bool:
        return self.done + self.kept >= self.total


def work_on(
    run: Run,
    letters: QuerySet[Any],
    verb: BulkVerb,
    options: Mapping[str, Any],
    *,
    request: HttpRequest,
    label: str,
) -> list[int]:
    """Batches until the slice is over or the run: each a transaction together with its log.

    `label` says what the letters have in common and is logged once a batch; without one each of
    the letters is logged. Returns the ids of those that a foreign key keeps.
    """
    kept: list[int] = []
    alias = DeadLetter.objects.database
    ends = time.monotonic() + SLICE
    while not run.is_over and time.monotonic() < ends:
        with yield_to_other_writers(alias), write_transaction(alias):
            batch = _next_batch(run, letters)
            count = verb.act([letter.pk for letter in batch], options, _delay(run, options))
            text = verb.log_text(options)
            if label and count:
                log_many(request, Message, f"{count} of {label}", verb.log_flag, text)
            elif count:
                # Under the name that the row keeps when it is no dead letter any more.
                done = [letter for letter in batch if letter.pk not in count.referenced]
                rows = [Message(pk=letter.pk, queue=letter.queue) for letter in done]
                log(request, rows, verb.log_flag, text)
        run.done += count
        run.kept += len(count.referenced)
        kept += count.referenced
        if not batch:
            run.total = run.done + run.kept  # somebody else was quicker with the rest
    return kept


def _next_batch(run: Run, letters: QuerySet[Any]) -> list[Any]:
    """The longest dead of the first queue that has some left; remembers how far that is.

    Queue by queue, because the index of dead letters is.
    """
    limit = min(BATCH, run.total - run.done - run.kept)
    names = Queue.objects.filter(name__gte=run.queue).order_by("name")
    for name in names.values_list("name", flat=True):
        since, after = (run.since, run.after) if name == run.queue else (0, 0)
        left = letters.filter(queue=name, finished_at__gte=since, finished_at__lte=run.until)
        left = left.filter(Q(finished_at__gt=since) | Q(pk__gt=after))
        found = list(left.order_by("finished_at", "pk").only("queue", "finished_at")[:limit])
        if found:
            run.queue, run.since = name, epoch_ms(found[-1].finished_at)
            run.after = found[-1].pk
            return found
    return []


def _delay(run: Run, options: Mapping[str, Any]) -> float:
    """Seconds until the next of a rate is due, counted from when the run began."""
    rate: float | None = options.get("rate")
    if not rate:
        return 0.0
    return max(0.0, run.started / 1000 + run.done / rate - timing.now_ms() / 1000)
