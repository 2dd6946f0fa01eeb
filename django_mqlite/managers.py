"""The public verbs: which connection, at what time, in which transaction."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, models, router, transaction

from . import clock, signals
from .conf import get_settings, queue_config
from .deliveries import Settlement, claim_rows, settle
from .doorbell import ring
from .drafts import MessageOptions, draft
from .durations import Duration, milliseconds
from .exceptions import QueueNotFound, TransactionRefused
from .fields import moment
from .names import checked_name
from .store import browse, queues, redrive, renew
from .store.claim import queue_exists
from .store.enqueue import enqueue
from .store.rows import MessageRow
from .transactions import in_callers_transaction, write_transaction
from .types import Completion, Outcome, QueueConfig, QueueStats, State

if TYPE_CHECKING:
    from .models import DeadLetter, Message, Queue

M = TypeVar("M", bound=models.Model)

BATCH = 1_000
"""Redrives and purges hold the write lock for so many rows at most."""

_TIMES = ("visible_at", "enqueued_at", "expires_at", "locked_at", "locked_until", "finished_at")
_DOCUMENTS = ("properties", "errors", "result")
_TIME_PLACES = tuple(map(MessageRow._fields.index, _TIMES))
_DOCUMENT_PLACES = tuple(map(MessageRow._fields.index, _DOCUMENTS))
_BLOCKED = MessageRow._fields.index("blocked")

# Whether a new message is blocked is decided by a trigger after the row is returned, so that one
# field is left deferred: read when somebody asks for it.
_ENQUEUED = tuple(name for name in MessageRow._fields if name != "blocked")


class VerbManager(models.Manager[M]):
    """A manager whose verbs run on one database."""

    @property
    def alias(self) -> str:
        """The database the verbs run on: db_manager()'s, else the routers' for writing."""
        return self._db or router.db_for_write(self.model)


class MessageManager(VerbManager["Message"]):
    """Enqueue, claim, renew, settle, look."""

    def enqueue(self, queue: str, data: Any, **options: Unpack[MessageOptions]) -> "Message":
        """Put a message into `queue`, in the caller's transaction if there is one.

        `data`: bytes as they are, str as UTF-8 text, anything else as strict JSON. Options: `delay`
        or `visible_at` to schedule, `ttl`, `priority`, `group_id`, `max_delivery_count`,
        `message_id`, `correlation_id`, `reply_to`, `subject`, `content_type`, `properties`; lengths
        of time are timedeltas or seconds. Returns the stored message; its `id` is final.

        Raises QueueNotFound, MessageTooLarge, GroupRequired, PriorityRefused, or a ValueError or
        TypeError that names the argument, each before anything is written. Called twice it stores
        two messages.
        """
        alias = self.alias
        new = draft(queue, data, max_body_bytes=get_settings().max_body_bytes, **options)
        now = clock.now_ms()
        id, state, line, expires_at = enqueue(connections[alias], new, now=now)
        transaction.on_commit(partial(ring, alias), using=alias, robust=True)
        row = MessageRow(
            id=id,
            queue=new.queue,
            state=state,
            priority=new.priority,
            line=line,
            visible_at=new.visible_at or now + new.delay_ms,
            enqueued_at=now,
            expires_at=expires_at,
            max_delivery_count=new.max_delivery_count,
            message_id=new.message_id,
            correlation_id=new.correlation_id,
            reply_to=new.reply_to,
            group_id=new.group_id,
            subject=new.subject,
            content_type=new.content_type,
            properties=new.properties,
            body=new.body,
        )
        values = _python_values(row)
        del values[_BLOCKED]
        return self.model.from_db(alias, _ENQUEUED, values)

    def claim(
        self,
        queue: str,
        *,
        limit: int = 1,
        lock_duration: Duration | None = None,
        worker: str | None = None,
    ) -> list["Message"]:
        """Take up to `limit` messages of `queue` under a lease, in claim order; [] if there are none.

        Each counts a delivery. The lease lasts `lock_duration` (timedelta or seconds), by default
        the queue's; settle each message before it ends, or renew it. `worker` says who, for people.

        Raises QueueNotFound, and TransactionRefused inside the caller's `atomic()`.
        """
        _positive(limit, "limit")
        alias = self.alias
        if in_callers_transaction(alias):
            raise TransactionRefused
        lock_ms = _lock_ms(lock_duration)
        with write_transaction(alias) as connection:
            rows = claim_rows(
                connection,
                queue,
                now=clock.now_ms(),
                limit=limit,
                worker=worker,
                lock_duration=lock_ms,
            )
        return self.from_rows(rows)

    def settle(
        self, message: "Message", outcome: Outcome, *, error: BaseException | str | None = None
    ) -> bool:
        """End the delivery as `outcome` says; False if its lease is lost and nothing was written."""
        settlement = Settlement(message=message, outcome=outcome, error=error)
        with write_transaction(self.alias) as connection:
            return settle(connection, [settlement], now=clock.now_ms())[0]

    def complete_many(self, messages: Sequence["Message"]) -> list[bool]:
        """Complete all of them in one statement; for each whether its lease still held."""
        settlements = [Settlement(message=message, outcome=Completion()) for message in messages]
        with write_transaction(self.alias) as connection:
            return settle(connection, settlements, now=clock.now_ms())

    def renew_many(
        self, messages: Sequence["Message"], lock_duration: Duration | None = None
    ) -> list[bool]:
        """Renew all their leases in one statement; for each whether it still held.

        `locked_until` of the renewed ones tells the new deadline. A lease is never shortened and an
        expired one never revived.
        """
        lock_ms = _lock_ms(lock_duration)
        leases = [lease for message in messages if (lease := message.lease)]
        with write_transaction(self.alias) as connection:
            until = renew.renew(connection, leases, now=clock.now_ms(), lock_duration=lock_ms)
        for message in messages:
            if message.pk in until:
                message.locked_until = moment(until[message.pk])
        return [message.lease is not None and message.pk in until for message in messages]

    def peek(self, queue: str, *, limit: int = 10) -> list["Message"]:
        """The next messages of `queue` in claim order, without a lease; QueueNotFound if there is none.

        First those a claim could take, then those that wait behind another of their group.
        """
        _positive(limit, "limit")
        connection = connections[self.alias]
        rows = browse.peek(connection, queue, limit=limit)
        if not rows:
            _must_exist(connection, queue)
        return self.from_rows(rows)

    def from_rows(self, rows: Iterable[MessageRow]) -> list["Message"]:
        """The rows as model instances, without another query."""
        return [
            self.model.from_db(self.alias, MessageRow._fields, _python_values(row)) for row in rows
        ]


def _python_values(row: MessageRow) -> list[Any]:
    values: list[Any] = list(row)
    for place in _TIME_PLACES:
        values[place] = moment(values[place])
    for place in _DOCUMENT_PLACES:
        if values[place] is not None:
            values[place] = json.loads(values[place])
    values[_BLOCKED] = bool(values[_BLOCKED])
    return values


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
        _positive(limit, "limit")
        connection = connections[self.alias]
        rows = browse.peek_dead_letters(connection, queue, limit=limit)
        if not rows:
            _must_exist(connection, queue)
        return [
            self.model.from_db(self.alias, MessageRow._fields, _python_values(row)) for row in rows
        ]

    def _over_queue(
        self,
        queue: str,
        act: Callable[[Sequence[int]], int],
        limit: int | None,
        older_than: Duration | None,
    ) -> int:
        if limit is not None:
            _positive(limit, "limit")
        age = 0 if older_than is None else milliseconds(older_than, "older_than")
        connection = connections[self.alias]
        _must_exist(connection, queue)
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
        alias = self.alias
        with write_transaction(alias) as connection:
            count = redrive.redrive(connection, ids, now=clock.now_ms())
            self._tell(signals.messages_redriven, count)
            transaction.on_commit(partial(ring, alias), using=alias, robust=True)
        return count

    def _purge_batch(self, ids: Sequence[int]) -> int:
        with write_transaction(self.alias) as connection:
            count = redrive.purge(connection, ids)
            self._tell(signals.messages_purged, count)
        return count

    def _tell(self, signal: Any, count: int) -> None:
        send = partial(signal.send_robust, sender=self.model, count=count, using=self.alias)
        transaction.on_commit(send, using=self.alias, robust=True)


class QueueManager(VerbManager["Queue"]):
    """Create, configure, pause, count."""

    def create_queue(self, name: str, **options: Any) -> "Queue":
        """Create the queue `name`, or bring it to `options`, which are those of MQLITE['QUEUES'].

        Raises ValueError for a name that cannot be one and ImproperlyConfigured for a wrong option,
        also for leaving or entering strict_fifo while messages are unfinished.
        """
        self.declare(name, queue_config(options, f"queue {name!r}"))
        return self.get(name=name)

    def sync(self) -> list[str]:
        """Bring the queues declared in settings into the database; the names of those that changed.

        Queues that are no longer declared stay, with their messages.
        """
        declared = get_settings().queues.items()
        return [name for name, config in declared if self.declare(name, config)]

    def declare(self, name: str, config: QueueConfig) -> bool:
        """Create the queue or bring its row to `config`; whether anything had to change."""
        checked_name(name)
        with write_transaction(self.alias) as connection:
            held = queues.ordering_held(connection, name)
            if held is not None and _changes_line(held, config.ordering_mode):
                raise ImproperlyConfigured(
                    f"Queue {name!r} is {held[0]} and has messages standing in that order; it can "
                    f"become {config.ordering_mode} once it is empty."
                )
            return queues.declare_queue(connection, name, config, now=clock.now_ms())

    def set_paused(self, queue: "Queue", paused: bool) -> bool:
        """Pause or resume; whether that was a change."""
        with write_transaction(self.alias) as connection:
            changed = queues.pause_queue(connection, queue.pk, paused=paused, now=clock.now_ms())
            transaction.on_commit(partial(ring, self.alias), using=self.alias, robust=True)
        queue.paused = paused
        return changed

    def stats(self) -> list[QueueStats]:
        """The depth of every queue by state, by name."""
        return queues.queue_stats(connections[self.alias])


def _changes_line(held: tuple[str, bool], ordering_mode: str) -> bool:
    """Strict or not decides which line a message stands in, and that is written in the messages."""
    mode, has_messages = held
    return has_messages and (mode == "strict_fifo") != (ordering_mode == "strict_fifo")


def _must_exist(connection: Any, queue: str) -> None:
    if not queue_exists(connection, queue):
        raise QueueNotFound(queue, queues.queue_names(connection))


def _lock_ms(lock_duration: Duration | None) -> int | None:
    return None if lock_duration is None else milliseconds(lock_duration, "lock_duration", least=1)


def _positive(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {value!r}")
    if not 0 < value < 2**63:
        raise ValueError(f"{name} must be at least 1, not {value}")


def _batches(ids: Iterable[int]) -> Iterator[list[int]]:
    wanted = list(ids)
    for start in range(0, len(wanted), BATCH):
        yield wanted[start : start + BATCH]
