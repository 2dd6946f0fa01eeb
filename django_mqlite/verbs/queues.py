"""Create, configure, pause, count."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .. import timing
from ..conf import get_settings, queue_columns, queue_config
from ..doorbell import ring_doorbell
from ..exceptions import NameConflict, QueueNotFound
from ..handlers import queues_of_kinds
from ..names import checked_name
from ..store import sqlite as store
from ..transactions import after_commit, write_transaction
from ..types import QueueConfig, QueueOverview, QueueStats, Tallies, WorkerRecord
from .base import M, Verbs, require_queue
from .workers import last_hour, live_workers, settled


class QueueManager(Verbs[M]):
    """Create, configure, pause, count."""

    def create_queue(self, name: str, **options: Any) -> M:
        """Create the queue `name`, or bring it to `options`, which are those of MQLITE['QUEUES'].

        Options left out are at their defaults, also the second time: see configure(). Raises
        ValueError for a name that cannot be one, NameConflict for one that is taken by a topic or
        a subscription, and ImproperlyConfigured for a wrong option, also for leaving or entering
        strict_fifo while the queue has messages.
        """
        self.declare(name, queue_config(options, f"queue {name!r}"))
        return self.get(name=name)

    def configure(self, name: str, **options: Any) -> M:
        """Change these options of a queue, of a subscription's too, and leave the others alone.

        Raises QueueNotFound, and ImproperlyConfigured as create_queue() does.
        """
        columns = queue_columns(options, f"queue {name!r}")
        with write_transaction(self.database) as (connection, _):
            config = store.queues.queue_config(connection, name)
            if config is None:
                raise QueueNotFound(name, store.queues.queue_names(connection))
            self._declare(connection, name, replace(config, **columns))
        return self.get(name=name)

    def sync(self) -> list[str]:
        """Bring the queues declared in settings into the database; the names of those that changed.

        Those that a tasks backend names in TASKS are created if they are not there, with every
        option at its default. Queues that are no longer declared stay, with their messages.
        """
        with write_transaction(self.database) as (connection, now):
            store.base.write_schema_token(connection, now=now)
        declared = get_settings().queues
        missing = (
            queues_of_kinds() - declared.keys() - set(store.queues.queue_names(self.connection))
        )
        wanted = {**declared, **{name: QueueConfig() for name in sorted(missing)}}
        return [name for name, config in wanted.items() if self.declare(name, config)]

    def declare(self, name: str, config: QueueConfig) -> bool:
        """Create the queue or bring its row to `config`; whether anything had to change."""
        checked_name(name)
        with write_transaction(self.database) as (connection, _):
            holder = store.topics.name_holder(connection, name)
            if holder not in (None, f"a {config.kind}"):
                raise NameConflict(name, str(holder))
            return self._declare(connection, name, config)

    def _declare(self, connection: Any, name: str, config: QueueConfig) -> bool:
        held = store.queues.ordering_held(connection, name)
        if held is not None and _changes_line(held, config.ordering_mode):
            raise ImproperlyConfigured(
                f"Queue {name!r} is {held[0]} and has messages standing in that order; it can "
                f"become {config.ordering_mode} once it is empty."
            )
        return store.queues.declare_queue(connection, name, config, now=timing.now_ms())

    def set_paused(self, queue: Any, paused: bool) -> bool:
        """Pause or resume; whether that was a change."""
        with write_transaction(self.database) as (connection, now):
            changed = store.queues.pause_queue(connection, queue.pk, paused=paused, now=now)
            after_commit(self.database, partial(ring_doorbell, self.database))
        queue.paused = paused
        return changed

    def stats(self) -> list[QueueStats]:
        """The depth of every queue by state, by name."""
        return store.queues.queue_stats(self.connection, now=timing.now_ms())

    def overview(self) -> list[QueueOverview]:
        """Every queue at a glance, by name: depth, workers, and the last hour by minutes.

        The hour is what workers have counted: messages settled by other programs are not in it,
        and the last 15 seconds may be missing.
        """
        using, now = self.database, timing.now_ms()
        counted, workers = settled(using), live_workers(using)
        return [
            _overview(stats, counted, [each for each in workers if stats.queue in each.queues], now)
            for stats in self.stats()
        ]

    def named(self, name: str) -> M:
        """The queue of this name. Raises QueueNotFound, with the name that may have been meant."""
        require_queue(self.connection, name)
        return self.get(name=name)


def _overview(
    stats: QueueStats, counted: Tallies, serving: Sequence[WorkerRecord], now: int
) -> QueueOverview:
    return QueueOverview(
        stats=stats,
        workers=len(serving),
        slots=sum(worker.slots for worker in serving),
        minutes=last_hour(counted, stats.queue, now=now),
    )


def _changes_line(held: tuple[str, bool], ordering_mode: str) -> bool:
    """Strict or not decides which line a message stands in, and that is written in the messages."""
    mode, has_messages = held
    return has_messages and (mode == "strict_fifo") != (ordering_mode == "strict_fifo")
