"""Dead letters are acted on a thousand at a time, each thousand in a transaction of its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import clock
from ..durations import Duration, milliseconds
from ..store import redrive as store
from ..transactions import one_of_many
from ..types import BulkCount
from .base import BATCH, VerbManager, must_exist, positive

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


def in_batches(manager: VerbManager[Any], ids: Iterable[int], act: Act) -> BulkCount:
    """`act` on these; how many it has acted on."""
    wanted = list(dict.fromkeys(ids))  # an id said twice would be copied twice
    done = BulkCount()
    for start in range(0, len(wanted), BATCH):
        with one_of_many(manager.using_alias):
            done = done.plus(act(wanted[start : start + BATCH]))
    return done


def over_queue(manager: VerbManager[Any], queue: str, act: Act, over: Over) -> BulkCount:
    """`act` on those of `queue`, the longest dead first; how many it has acted on."""
    if over.limit is not None:
        positive(over.limit, "limit")
    finished_before = _finished_before(manager.connection, queue, over.older_than)
    done, after = BulkCount(), store.Death(-1, 0)
    while over.limit is None or done < over.limit:
        wanted = BATCH if over.limit is None else min(BATCH, over.limit - done)
        deaths = store.deaths(
            manager.connection,
            queue,
            finished_before=finished_before,
            after=after,
            reason=over.reason,
            limit=wanted,
        )
        if deaths:
            after = deaths[-1]
            with one_of_many(manager.using_alias):
                done = done.plus(act([death.id for death in deaths]))
            if over.progress is not None:
                over.progress(done)
        if len(deaths) < wanted:
            break
    return done


def _finished_before(connection: Any, queue: str, older_than: Duration | None) -> int:
    """Later deaths are not meant: by age, or because they come while this one is at work."""
    age = None if older_than is None else milliseconds(older_than, "older_than", least=1)
    must_exist(connection, queue)
    if age is None:
        return store.last_death(connection, queue) or 0
    return clock.now_ms() - age
