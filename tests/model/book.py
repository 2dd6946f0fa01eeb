"""The state of the model, and the steps of which its verbs consist."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from django_mqlite.types import Lease
from tests.model.values import New, Options, Record

UNFINISHED = {"active", "scheduled", "locked", "deferred"}
TABLES = (
    "queues", "messages", "heads", "receipts", "attempts", "seen", "ended", "last_id", "buckets",
)  # fmt: skip
"""The attributes that a rollback restores."""


@dataclass(kw_only=True)
class Book:
    """Queues, topics and messages, and the receipts, attempts and keys that expire."""

    queues: dict[str, Options]
    topics: dict[str, dict[str, Callable[[New], bool]]] = field(default_factory=dict)
    now: int = 0
    messages: dict[int, Record] = field(default_factory=dict)
    heads: dict[tuple[str, str], int] = field(default_factory=dict)
    receipts: dict[Lease, tuple[tuple, int]] = field(default_factory=dict)
    attempts: dict[tuple[str, str], tuple[list[Lease], int]] = field(default_factory=dict)
    seen: dict[tuple, tuple[bytes, int, int]] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    last_id: int = 0
    buckets: dict[str, tuple[Fraction, int]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    saves: list[dict[str, Any]] = field(default_factory=list)

    # Rules 1.1 and 3.7: transactions of the caller

    def begin(self) -> None:
        self.saves.append(deepcopy({name: getattr(self, name) for name in TABLES}))

    def commit(self) -> None:
        self.saves.pop()

    def rollback(self) -> None:
        vars(self).update(self.saves.pop())

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        except Exception:
            self.rollback()
            raise
        self.commit()

    # Messages

    def of(self, queue: str) -> list[Record]:
        return [m for m in self.messages.values() if m.queue == queue]

    def add(self, queue: str, new: New, *, delay: int) -> Record:
        self.last_id += 1
        record = Record(
            id=self.last_id, queue=queue, new=new, priority=new.priority, visible_at=self.now
        )
        self.messages[record.id] = record
        self.wait(record, delay)
        self.enter(record)
        return record

    def wait(self, record: Record, delay: int) -> None:
        record.state = "scheduled" if delay else "active"
        record.visible_at = self.now + delay
        record.token = None

    def finish(self, record: Record, state: str) -> None:
        record.state, record.token, record.finished_at = state, None, self.now
        self.leave(record)

    def bury(self, record: Record, reason: str, description: str | None = None) -> None:
        record.reason, record.description = reason, description
        self.finish(record, "dead_lettered")

    def delete(self, record: Record, why: str) -> None:
        del self.messages[record.id]
        self.ended[record.id] = why
        self.leave(record)

    # Rule 6: each line has one head among its unfinished messages, and only the head is claimable

    def line(self, record: Record) -> tuple[str, str] | None:
        if self.queues[record.queue].ordering_mode == "strict_fifo":
            return record.queue, ""
        return None if record.new.group is None else (record.queue, record.new.group)

    def enter(self, record: Record) -> None:
        """Make the first message of the line its head unless a later head is locked or deferred."""
        line = self.line(record)
        if line is None:
            return
        head = self.heads.setdefault(line, record.id)
        if self.messages[head].state in ("active", "scheduled"):
            self.heads[line] = min(m.id for m in self.unfinished(line))

    def leave(self, record: Record) -> None:
        """Promote the earliest message behind the head that leaves."""
        line = self.line(record)
        if line is not None and self.heads.get(line) == record.id:
            del self.heads[line]
            behind = [m.id for m in self.unfinished(line) if m is not record]
            self.heads.update({line: min(behind)} if behind else {})

    def unfinished(self, line: tuple[str, str] | None) -> list[Record]:
        at = self.messages.values()
        return [m for m in at if m.state in UNFINISHED and self.line(m) == line]

    def is_head(self, record: Record) -> bool:
        line = self.line(record)
        return line is None or self.heads[line] == record.id

    # Rule 17: limits

    def live(self, queue: str) -> int:
        """Count the live leases."""
        return sum(m.state == "locked" and m.locked_until > self.now for m in self.of(queue))

    def rate_tokens(self, queue: str) -> Fraction:
        """Return what the bucket has now; a bucket without an entry is full."""
        count, period = self.queues[queue].rate or (0, 1)
        tokens, at = self.buckets.get(queue, (Fraction(count), self.now))
        return min(Fraction(count), tokens + Fraction(max(0, self.now - at) * count, period))

    def room(self, queue: str) -> int:
        options = self.queues[queue]
        rooms = [1_000]
        if options.max_in_flight:
            rooms.append(max(0, options.max_in_flight - self.live(queue)))
        if options.rate:
            rooms.append(int(self.rate_tokens(queue)))
        return min(rooms)

    def take(self, queue: str, count: int) -> None:
        """Take tokens. A claim of nothing starts the bucket again after the clock was set back."""
        _, at = self.buckets.get(queue, (0, 0))
        if self.queues[queue].rate and (count or at > self.now):
            self.buckets[queue] = self.rate_tokens(queue) - count, self.now

    def limit(self, queue: str, max_in_flight: int, rate: tuple[int, int] | None) -> None:
        """Change the limits of the queue, which keeps its tokens."""
        options = self.queues[queue]
        if options.rate != rate:
            kept = self.rate_tokens(queue)
            self.buckets.pop(queue, None)
            if options.rate and rate:
                count, period = rate
                kept = Fraction(int(kept * period), period)
                self.buckets[queue] = min(Fraction(count), kept), self.now
        options.max_in_flight, options.rate = max_in_flight, rate

    def next_tokens(self) -> set[int]:
        """Return the times of the next token of every bucket that is not full."""
        return {
            at + math.ceil((1 - tokens % 1) * rate[1] / rate[0])
            for queue, (tokens, at) in self.buckets.items()
            if (rate := self.queues[queue].rate) and tokens < rate[0]
        }

    def over(self, record: Record) -> bool:
        return 0 < record.expires_at <= self.now

    # Reads

    def counts(self, queue: str) -> Counter[str]:
        return Counter(m.state for m in self.of(queue))

    def deadlines(self) -> list[int]:
        """Return every time at which a lease, a delay, a time to live or a record ends."""
        messages = self.messages.values()
        ends = {at for m in messages for at in (m.locked_until, m.visible_at, m.expires_at)}
        kept: list[dict] = [self.receipts, self.attempts, self.seen]
        return sorted(
            ends | self.next_tokens() | {value[-1] for table in kept for value in table.values()}
        )
