"""Create, configure, pause and count queues."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .. import timing
from ..arguments import checked_text
from ..conf import get_settings, queue_columns, queue_config
from ..doorbell import ring_doorbell
from ..exceptions import NameConflict, QueueNotDeletable, QueueNotFound
from ..guard import safe_repr
from ..handlers import queues_of_kinds
from ..limits import QueueLimits
from ..names import checked_name
from ..store import sqlite as store
from ..transactions import after_commit, write_transaction, yield_to_other_writers
from ..types import BlockingHead, OrderingMode, QueueConfig, QueueOverview, QueueStats, WorkerRecord
from .base import BATCH, M, Verbs, require_queue
from .references import naming_references
from .tallies import delivery_times, periods
from .workers import busy_slots, counted_deliveries, live_workers

KINDS = ("queue", "subscription")


class QueueVerbs(Verbs[M]):
    """Create, configure, pause and count queues."""

    def create_queue(self, name: str, **options: Any) -> M:
        """Create the queue `name` with `options`, which are those of MQLITE['QUEUES'].

        If the queue exists, it gets exactly these options; options that are not passed return to
        their defaults. Use configure() to change some of them.

        Raises ValueError for an invalid name, NameConflict if a topic or a subscription has the
        name, and ImproperlyConfigured for an invalid option, or if the queue has messages and
        would become or stop being strict_fifo.
        """
        name = checked_name(name)
        self.declare(name, queue_config(options, f"queue {name!r}"))
        return self.get(name=name)

    def configure(self, name: str, **options: Any) -> M:
        """Change these options of a queue, or of a subscription's queue, and keep the others.

        Raises QueueNotFound, and ImproperlyConfigured as create_queue() does.
        """
        name = checked_text(name, "name")
        columns = queue_columns(options, f"queue {name!r}")
        with write_transaction(self.database) as (connection, now):
            config = store.queues.queue_config(connection, name)
            if config is None:
                raise QueueNotFound(name, store.queues.queue_names(connection))
            _declare(connection, name, replace(config, **columns), now=now)
        return self.get(name=name)

    def create_or_configure(self, name: str, *, kind: str = "queue", **options: Any) -> M:
        """Create the queue `name` with `options`, or change these options of it.

        If the queue exists, the options that are not passed keep their values. With `kind`
        "subscription" it is the queue of a subscription, which subscribe() normally creates.

        Raises ValueError for an invalid name or kind, NameConflict if a topic or a queue of the
        other kind has the name, and ImproperlyConfigured as create_queue() does.
        """
        name = checked_name(name)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {safe_repr(kind)}")
        columns = queue_columns(options, f"queue {name!r}")
        with write_transaction(self.database) as (connection, now):
            _check_owner(connection, name, kind)
            config = store.queues.queue_config(connection, name) or QueueConfig(kind=kind)
            _declare(connection, name, replace(config, **columns), now=now)
        return self.get(name=name)

    @naming_references
    def delete_queue(self, name: str, *, everything: bool = False) -> bool:
        """Delete a queue and its completed messages; return False if it does not exist.

        A queue with unfinished messages or dead letters is deleted only with `everything=True`. Its
        messages are deleted in batches, each in its own transaction. An interrupted call leaves the
        rest; call it again. A handler that is running loses its lease.

        Raises QueueNotDeletable if the queue has such messages, belongs to a subscription, or is
        declared in MQLITE['QUEUES'] or TASKS, and MessageReferenced if a foreign key of the project
        prevents the deletion.
        """
        self.check_deletable(name, everything=everything)
        name = checked_text(name, "name")
        delete_messages(self.database, name, kind="queue", keep_work=not everything)
        with write_transaction(self.database) as (connection, _):
            _check_without_work(connection, name, everything)
            return store.queues.DELETE_QUEUE.run(connection, name=name, kind="queue") > 0

    def check_deletable(self, name: str, *, everything: bool = False) -> None:
        """Raise QueueNotDeletable if delete_queue() would. Reads only."""
        name = checked_text(name, "name")
        if name in get_settings().queues:
            raise QueueNotDeletable(
                name,
                "it is declared in MQLITE['QUEUES'], and `migrate` would create it again; remove "
                "the declaration first",
            )
        if name in queues_of_kinds():
            raise QueueNotDeletable(
                name,
                "a backend in TASKS uses it, and `migrate` would create it again; remove it there "
                "first",
            )
        connection = self.connection
        if store.topics.NAME_OWNER.value(connection, name=name) == "a subscription":
            raise QueueNotDeletable(name, "it belongs to a subscription; use unsubscribe()")
        _check_without_work(connection, name, everything)

    def sync(self) -> list[str]:
        """Apply the queues declared in settings to the database; return the changed names.

        Queues named in a tasks backend in TASKS are created with default options if they do not
        exist. Queues that are no longer declared are kept, with their messages.
        """
        with write_transaction(self.database) as (connection, now):
            store.base.write_schema_token(connection, now=now)
        declared = get_settings().queues
        existing = store.queues.queue_names(self.connection)
        missing = queues_of_kinds() - declared.keys() - set(existing)
        configs = {**declared, **{name: QueueConfig() for name in sorted(missing)}}
        return [name for name, config in configs.items() if self.declare(name, config)]

    def declare(self, name: str, config: QueueConfig) -> bool:
        """Create the queue or change its row to `config`; return whether anything was written."""
        name = checked_name(name)
        with write_transaction(self.database) as (connection, now):
            _check_owner(connection, name, config.kind)
            return _declare(connection, name, config, now=now)

    def set_paused(self, queue: Any, paused: bool) -> bool:
        """Pause or resume the queue; return False if nothing changed. Raises QueueNotFound."""
        name = checked_text(queue.pk, "name")
        with write_transaction(self.database) as (connection, now):
            changed = store.queues.PAUSE_QUEUE.run(
                connection, name=name, paused=int(paused), now=now
            )
            if not changed:
                require_queue(connection, name)
            after_commit(self.database, partial(ring_doorbell, self.database))
        queue.paused = paused
        return changed > 0

    def limits(self, name: str) -> QueueLimits:
        """Return the limits of the queue and how much of them is used. Raises QueueNotFound."""
        name = checked_text(name, "name")
        limits = store.limits.limits_of(self.connection, [name], now=timing.now_ms())
        if name not in limits:
            raise QueueNotFound(name, store.queues.queue_names(self.connection))
        return limits[name]

    def stats(self) -> list[QueueStats]:
        """Return the number of messages per state for every queue, sorted by queue name."""
        return store.queues.queue_stats(self.connection, now=timing.now_ms())

    def stats_of(self, name: str) -> QueueStats:
        """Return the number of messages per state of one queue. Raises QueueNotFound."""
        name = checked_text(name, "name")
        stats = store.queues.stats_of(self.connection, name, now=timing.now_ms())
        if stats is None:
            raise QueueNotFound(name, store.queues.queue_names(self.connection))
        return stats

    def oldest_enqueued_at(self, name: str) -> int | None:
        """Return when the oldest active or locked message of a queue was enqueued.

        The time is in epoch milliseconds, None if there is no such message.
        """
        name = checked_text(name, "name")
        at: int | None = store.queues.OLDEST_ENQUEUED_AT.value(self.connection, queue=name)
        return at

    def overview(self, workers: Sequence[WorkerRecord] | None = None) -> list[QueueOverview]:
        """Return depth, workers, and the deliveries of the last hour and day for every queue.

        Sorted by name. Workers count the deliveries: messages settled by other programs are not
        included, and the last 15 seconds may be missing. `workers` are the live workers, if the
        caller has read them already.
        """
        if workers is not None and not (
            isinstance(workers, Sequence)
            and all(isinstance(worker, WorkerRecord) for worker in workers)
        ):
            raise TypeError(f"workers must be a sequence of WorkerRecord, not {safe_repr(workers)}")
        now = timing.now_ms()
        tallies = counted_deliveries(self.database)
        workers = live_workers(self.database) if workers is None else workers
        held = busy_slots(self.database, [worker.worker for worker in workers])
        all_stats = self.stats()
        heads = self._blocking_heads(all_stats)
        overviews = []
        for stats in all_stats:
            serving = [worker for worker in workers if stats.queue in worker.queues]
            overviews.append(
                QueueOverview(
                    stats=stats,
                    workers=len(serving),
                    slots=sum(worker.slots for worker in serving),
                    busy=sum(held.get(worker.worker, 0) for worker in serving),
                    head=heads.get(stats.queue),
                    minutes=periods(tallies, "minutes", stats.queue, now=now),
                    half_hours=periods(tallies, "half_hours", stats.queue, now=now),
                    wait=delivery_times(tallies, "waits", stats.queue),
                    run=delivery_times(tallies, "runs", stats.queue),
                )
            )
        return overviews

    def _blocking_heads(self, all_stats: list[QueueStats]) -> dict[str, BlockingHead]:
        ids = [stats.oldest_blocked for stats in all_stats if stats.oldest_blocked is not None]
        return store.queues.blocking_heads(self.connection, ids) if ids else {}

    def named(self, name: str) -> M:
        """Return the queue with this name. Raises QueueNotFound, which suggests a similar name."""
        name = checked_text(name, "name")
        require_queue(self.connection, name)
        return self.get(name=name)


def _check_owner(connection: Any, name: str, kind: str) -> None:
    owner = store.topics.NAME_OWNER.value(connection, name=name)
    if owner not in (None, f"a {kind}"):
        raise NameConflict(name, owner)


def _check_without_work(connection: Any, name: str, everything: bool) -> None:
    if not everything and store.queues.HAS_WORK.value(connection, queue=name):
        raise QueueNotDeletable(
            name, "it has unfinished messages or dead letters; pass everything=True to delete them"
        )


def delete_messages(using: str, name: str, *, kind: str, keep_work: bool = False) -> None:
    """Delete the messages of a queue of this kind in batches, unless `keep_work` finds some."""
    deleted = BATCH
    while deleted == BATCH:
        with yield_to_other_writers(using), write_transaction(using) as (connection, _):
            config = store.queues.queue_config(connection, name)
            if config is None or config.kind != kind:
                return
            if keep_work and store.queues.HAS_WORK.value(connection, queue=name):
                return
            deleted = store.queues.EMPTY_QUEUE.run(connection, queue=name, limit=BATCH)


def _declare(connection: Any, name: str, config: QueueConfig, *, now: int) -> bool:
    """Write the queue's row, unless it has messages that rely on another ordering mode."""
    ordered = store.queues.ORDERED_MESSAGES.one(connection, name=name)
    if ordered is not None:
        mode, has_messages = ordered
        strict = OrderingMode.STRICT_FIFO
        if has_messages and (mode == strict) != (config.ordering_mode == strict):
            raise ImproperlyConfigured(
                f"Queue {name!r} is {mode} and has messages in that order: it can become "
                f"{config.ordering_mode} when it is empty."
            )
        _keep_tokens(connection, name, config, now=now)
    is_written = store.queues.declare_queue(connection, name, config, now=now)
    if is_written:
        after_commit(connection.alias, partial(ring_doorbell, connection.alias))
    return is_written


def _keep_tokens(connection: Any, name: str, config: QueueConfig, *, now: int) -> None:
    """Keep the tokens of a rate that changes, at most the new count. A first rate starts full."""
    bucket = store.limits.limits_of(connection, [name], now=now)[name].bucket
    if bucket is None or bucket.rate == config.rate:
        return
    rate = config.rate
    store.limits.write_bucket(connection, name, None if rate is None else bucket.with_rate(rate))
