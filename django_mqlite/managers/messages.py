"""Enqueue, claim, renew, settle, look."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from django.db import connections, transaction

from .. import clock
from ..conf import get_settings
from ..deliveries import Settlement, claim_rows, settle
from ..doorbell import ring
from ..drafts import MessageOptions, draft
from ..durations import Duration, milliseconds
from ..exceptions import TransactionRefused
from ..fields import moment
from ..store import browse, renew
from ..store.claim import claimable_queues
from ..store.data_version import data_version
from ..store.enqueue import enqueue
from ..store.rows import MessageRow
from ..transactions import in_callers_transaction, write_transaction
from ..types import Completion, Outcome
from .base import VerbManager, must_exist, positive
from .rows import from_new_row, from_rows

if TYPE_CHECKING:
    from ..models import Message


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
        alias = self.using_alias
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
        return from_new_row(self.model, alias, row)

    def claim(
        self,
        queue: str,
        *,
        limit: int = 1,
        lock_duration: Duration | None = None,
        worker: str | None = None,
    ) -> list["Message"]:
        """Take up to `limit` messages of `queue` under a lease, in claim order; [] for none.

        Each counts a delivery. The lease lasts `lock_duration` (timedelta or seconds), by default
        the queue's; settle each message before it ends, or renew it. `worker` says who, for people.

        Raises QueueNotFound, and TransactionRefused inside the caller's `atomic()`.
        """
        positive(limit, "limit")
        alias = self.using_alias
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
        return from_rows(self.model, self.using_alias, rows)

    def settle(
        self, message: "Message", outcome: Outcome, *, error: BaseException | str | None = None
    ) -> bool:
        """End the delivery as `outcome` says; False if its lease is lost, nothing written."""
        settlement = Settlement(message=message, outcome=outcome, error=error)
        with write_transaction(self.using_alias) as connection:
            return settle(connection, [settlement], now=clock.now_ms())[0]

    def complete_many(self, messages: Sequence["Message"]) -> list[bool]:
        """Complete all of them in one statement; for each whether its lease still held."""
        settlements = [Settlement(message=message, outcome=Completion()) for message in messages]
        with write_transaction(self.using_alias) as connection:
            return settle(connection, settlements, now=clock.now_ms())

    def claimable(self) -> set[str]:
        """The queues in which a claim would find something. A read: it takes no write lock."""
        return claimable_queues(connections[self.using_alias], now=clock.now_ms())

    def data_version(self) -> int:
        """A number that changes when another connection commits; own commits do not count."""
        connection = connections[self.using_alias]
        connection.ensure_connection()
        with connection.wrap_database_errors:
            return data_version(connection.connection)

    def exchange(
        self, settlements: Sequence[Settlement], queues: Iterable[str], *, limit: int, worker: str
    ) -> tuple[list[bool], list["Message"]]:
        """Settle what has finished and claim up to `limit` more, in one transaction, one commit.

        The queues are asked in the order given. Returns for each settlement whether its lease still
        held, and the claimed messages.
        """
        rows: list[MessageRow] = []
        with write_transaction(self.using_alias) as connection:
            now = clock.now_ms()
            held = settle(connection, settlements, now=now)
            for queue in queues:
                if len(rows) < limit:
                    wanted = limit - len(rows)
                    rows += claim_rows(connection, queue, now=now, limit=wanted, worker=worker)
        return held, from_rows(self.model, self.using_alias, rows)

    def renew_many(
        self, messages: Sequence["Message"], lock_duration: Duration | None = None
    ) -> list[bool]:
        """Renew all their leases in one statement; for each whether it still held.

        `locked_until` of the renewed ones tells the new deadline. A lease is never shortened and an
        expired one never revived.
        """
        lock_ms = _lock_ms(lock_duration)
        leases = [lease for message in messages if (lease := message.lease)]
        with write_transaction(self.using_alias) as connection:
            until = renew.renew(connection, leases, now=clock.now_ms(), lock_duration=lock_ms)
        for message in messages:
            if message.pk in until:
                message.locked_until = moment(until[message.pk])
        return [message.lease is not None and message.pk in until for message in messages]

    def peek(self, queue: str, *, limit: int = 10) -> list["Message"]:
        """The next messages of `queue` in claim order, without a lease. Raises QueueNotFound.

        First those a claim could take, then those that wait behind another of their group.
        """
        positive(limit, "limit")
        connection = connections[self.using_alias]
        rows = browse.peek(connection, queue, limit=limit)
        if not rows:
            must_exist(connection, queue)
        return from_rows(self.model, self.using_alias, rows)


def _lock_ms(lock_duration: Duration | None) -> int | None:
    return None if lock_duration is None else milliseconds(lock_duration, "lock_duration", least=1)
