"""The queue in its file and the reference model: the same calls must have the same results."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

from django.db import connection, transaction

from django_mqlite import LockLost, MqliteError
from django_mqlite.models import Message
from django_mqlite.testing import FakeClock
from django_mqlite.timing import epoch_ms
from django_mqlite.types import Abandonment
from tests.model.book import UNFINISHED
from tests.model.reference import Reference
from tests.model.values import New, Record

REMEMBERED = 40
"""Claimed messages kept in memory, so that old leases meet new ones."""

TABLES = (
    "mqlite_messages",
    "mqlite_subscriptions",
    "mqlite_queues",
    "mqlite_dedup",
    "mqlite_settlement_receipts",
    "mqlite_receive_attempts",
    "sqlite_sequence",
)

ROWS = """
    SELECT id, queue, state, priority, delivery_count, lock_token,
           CASE state WHEN 'locked' THEN locked_until ELSE 0 END,
           CASE state WHEN 'scheduled' THEN visible_at ELSE 0 END,
           expires_at, finished_at, dead_letter_reason, message_id, unique_key, group_id, body,
           uncounted_retries, json_extract(progress, '$.fraction'), blocked
      FROM mqlite_messages ORDER BY id
"""


def seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def attempt(call: Callable[[], Any]) -> Any:
    """Return what the call returns, or the class of its error."""
    try:
        return call()
    except (MqliteError, ValueError) as error:
        return type(error)


def empty_tables() -> None:
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table}")


def row_of(record: Record) -> tuple:
    """Return the message as ROWS reads it."""
    return (
        record.id,
        record.queue,
        record.state,
        record.priority,
        record.deliveries,
        record.token,
        record.locked_until if record.state == "locked" else 0,
        record.visible_at if record.state == "scheduled" else 0,
        record.expires_at,
        record.finished_at,
        record.reason,
        record.new.message_id,
        record.new.unique,
        record.new.group,
        record.new.body,
        record.uncounted,
        record.progress,
    )


class World:
    """The queue, the model, and the claimed messages that a process has in memory."""

    def __init__(self, clock: FakeClock, model: Reference) -> None:
        self.clock = clock
        self.model = model
        self.held: list[Message] = []
        self.requests: list[tuple[Message, tuple]] = []
        self.redriven: set[int] = set()
        self.open: list[transaction.Atomic] = []

    def both(self, real: Callable[[], Any], expected: Callable[[], Any]) -> Any:
        """Check that the queue and the model return, or raise, the same."""
        self.model.now = self.clock.ms
        result, modelled = attempt(real), attempt(expected)
        assert result == modelled, f"the queue: {result}, the model: {modelled}"
        return result

    # Claims

    def claim(
        self, real: Callable[[], list[Message]], expected: Callable[[list[str]], list[Record]]
    ) -> None:
        """Check that both claim the same messages; pass the tokens of the queue to the model."""
        found: list[Message] = []

        def claimed() -> list[tuple]:
            found.extend(real())
            return [self.seen(message) for message in found]

        def modelled() -> list[tuple]:
            tokens = [m.lock_token for m in found if m.lock_token not in self.model.tokens]
            return [self.delivered(record) for record in expected([t for t in tokens if t])]

        self.both(claimed, modelled)
        self.held = [*self.held, *found][-REMEMBERED:]

    def seen(self, message: Message) -> tuple:
        until = epoch_ms(message.locked_until) if message.locked_until else 0
        return (
            message.pk, message.queue, message.lock_token, until, message.delivery_count,
            message.group_id, message.priority, bytes(message.body),
        )  # fmt: skip

    def delivered(self, record: Record) -> tuple:
        self.check_order(record)
        new = record.new
        return (
            record.id, record.queue, record.token, record.locked_until, record.deliveries,
            new.group, record.priority, new.body,
        )  # fmt: skip

    def check_order(self, record: Record) -> None:
        """Check that no other message of the line is locked, and only redriven ones are earlier."""
        line = self.model.line(record)
        if line is not None:
            others = [m for m in self.model.unfinished(line) if m is not record]
            assert not [m for m in others if m.state == "locked"]
            assert {m.id for m in others if m.id < record.id} <= self.redriven

    # Settlements

    def settle(self, message: Message, request: tuple) -> None:
        """Settle the message, and its lease in the model."""
        verb, *arguments = request
        lease = message.lease
        assert lease is not None
        self.requests = [*self.requests, (message, request)][-REMEMBERED:]

        def real() -> None:
            if verb == "abandon":
                message.abandon(delay=seconds(arguments[0]), error="as drawn")
            elif verb == "snooze":
                outcome = Abandonment(delay_ms=arguments[0], counts=False)
                if not Message.objects.settle(message, outcome):
                    raise LockLost(message.queue, message.pk, "abandon")
            else:
                getattr(message, verb)(*arguments)

        self.both(real, lambda: self.model.settle(lease, request, rest=self.rest_of(lease.id)))

    def rest_of(self, id: int) -> int:
        """Return the remaining delay of the message, whose backoff is random."""
        row = Message.objects.filter(pk=id, state="scheduled").first()
        return (
            0 if row is None or row.visible_at is None else epoch_ms(row.visible_at) - self.clock.ms
        )

    def live(self, queue: str | None = None) -> list[Message]:
        """Return the claimed messages with a live lease, of this queue or of all."""
        self.model.now = self.clock.ms
        live = [m for m in self.held if m.lease is not None and self.model.held(m.lease)]
        return [m for m in live if queue in (None, m.queue)]

    def pick(self, place: int) -> Message:
        """Return a claimed message; those with a live lease come first, and the latest of them."""
        live = self.live()
        stale = [m for m in self.held if all(m is not each for each in live)]
        return (live[::-1] + stale[::-1])[place % len(self.held)]

    def ids(self, places: Sequence[int], state: str) -> list[int]:
        """Return ids of past and present messages; those in this state come first."""
        in_state = [id for id, record in self.model.messages.items() if record.state == state]
        others = [id for id in range(1, self.model.last_id + 2) if id not in in_state]
        return [(in_state + others)[place % (self.model.last_id + 1)] for place in places]

    def forged(self, message: Message, place: int, part: str) -> Message:
        """Return the message with a part of its lease replaced by that of another one."""
        others = {
            "claimed_token": [m.claimed_token for m in self.held],
            "queue": list(self.model.queues),
            "pk": list(self.model.messages),
        }[part]
        foreign = [other for other in others if other != getattr(message, part)]
        forgery = copy(message)
        if foreign:
            setattr(forgery, part, foreign[place % len(foreign)])
        return forgery

    # Transactions of the caller

    def begin(self) -> None:
        block = transaction.atomic()
        block.__enter__()
        self.open.append(block)
        self.model.begin()

    def end(self, *, commit: bool) -> None:
        if not commit:
            transaction.set_rollback(True)
        self.open.pop().__exit__(None, None, None)
        if commit:
            self.model.commit()
        else:
            self.model.rollback()

    # Comparison

    def compare(self) -> None:
        """Check that the file has exactly the messages of the model."""
        self.model.now = self.clock.ms
        with connection.cursor() as cursor:
            cursor.execute(ROWS)
            rows = cursor.fetchall()
        records = self.model.messages
        expected = [(*row_of(m), m.state in UNFINISHED and not self.model.is_head(m)) for m in
                    sorted(records.values(), key=lambda m: m.id)]  # fmt: skip
        assert rows == expected
        assert set(records) | set(self.model.ended) == set(range(1, self.model.last_id + 1))
        queues = self.model.queues
        claimable = {q for q in queues if self.model.claimable(q) and self.model.room(q)}
        assert Message.objects.claimable() == claimable

    def compare_claimable(self) -> None:
        """Compare the claimable messages and their order: claim all of them, and roll back."""
        queues = list(self.model.queues)
        self.model.begin()
        expected = {
            name: [m.id for m in self.model.claim_and_delete(name, 1_000)] for name in queues
        }
        self.model.rollback()
        found = {}
        with suppress(Undo), transaction.atomic():
            for name in queues:
                messages = Message.objects.claim_and_delete(name, limit=1_000)
                found[name] = [message.pk for message in messages]
            raise Undo
        assert found == expected

    def check_invariants(self) -> None:
        """Check the invariants of the rules on the messages of the model."""
        records = self.model.messages.values()
        tokens = [m.token for m in records if m.state == "locked"]
        assert len(set(tokens)) == len(tokens)
        for record in records:
            if record.state in ("active", "scheduled"):
                assert record.activated or record.deliveries < self.model.bound(record)
        keys = [(m.queue, m.new.unique) for m in records if m.state in UNFINISHED and m.new.unique]
        assert len(set(keys)) == len(keys)
        lines = {line for m in records if m.state in UNFINISHED and (line := self.model.line(m))}
        assert lines == set(self.model.heads)
        for line in lines:
            states = [m.state for m in self.model.unfinished(line)]
            assert states.count("locked") + states.count("deferred") <= 1


class Undo(Exception):
    """Raised to roll back a claim that was made for the comparison only."""


def options_of(new: New) -> dict[str, Any]:
    """Return the options of the message as enqueue() takes them."""
    values = {
        "group_id": new.group,
        "priority": new.priority,
        "delay": seconds(new.delay),
        "ttl": seconds(new.ttl),
        "max_delivery_count": new.bound,
        "message_id": new.message_id,
        "subject": new.subject,
        "unique_key": new.unique,
    }
    return {name: value for name, value in values.items() if value is not None}


def stored(messages: Sequence[Any]) -> list:
    """Return the id of each message and whether it is a duplicate; of a conflict, its class."""
    return [(m.pk, m.duplicate) if isinstance(m, Message) else type(m) for m in messages]
