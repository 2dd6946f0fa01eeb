"""The contract a second time, over plain dicts: slow, short, and without a line of SQL.

Times and lengths are epoch milliseconds, lengths in milliseconds; 0 is "none". The caller moves
`now`, and hands in what is chance in the real queue: lock tokens, and how long a backoff rests.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Any

from django_mqlite import (
    DuplicateConflict,
    GroupRequired,
    LockLost,
    PriorityRefused,
    QueueNotFound,
    TopicNotFound,
    TransactionRefused,
)
from django_mqlite.types import Lease

HALF_AN_HOUR = 30 * 60_000
UNFINISHED = {"active", "scheduled", "locked", "deferred"}
TABLES = ("queues", "messages", "heads", "receipts", "attempts", "seen", "ended", "last_id")


class Terse:
    """Says only what is not at its default, so that a failing example can be read."""

    def __repr__(self) -> str:
        said = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]  # type: ignore[arg-type]
        given = ", ".join(f"{name}={value!r}" for name, value, default in said if value != default)
        return f"{type(self).__name__}({given})"


@dataclass(kw_only=True, repr=False)
class Options(Terse):
    """What a queue is told."""

    ordering_mode: str = "standard"
    lock_duration: int = 30_000
    max_delivery_count: int = 10
    backoff_base: int = 0
    backoff_max: int = 3_600_000
    default_ttl: int = 0
    dead_letter_on_expire: bool = True
    dedup_window: int = 0
    retain_completed: int = 0
    dlq_max_age: int = 0
    dlq_max_count: int = 0
    dlq_max_bytes: int = 0
    paused: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class New(Terse):
    """A message before it is one; None is "not given"."""

    body: bytes = b""
    group: str | None = None
    priority: int = 0
    delay: int | None = None
    ttl: int | None = None
    bound: int | None = None
    message_id: str | None = None
    subject: str | None = None


@dataclass(kw_only=True)
class Record:
    """A message."""

    id: int
    queue: str
    new: New
    priority: int
    visible_at: int
    state: str = "active"
    expires_at: int = 0
    locked_until: int = 0
    token: str | None = None
    deliveries: int = 0
    delivered: bool = False
    finished_at: int = 0
    reason: str | None = None
    description: str | None = None

    @property
    def lease(self) -> Lease:
        return Lease(queue=self.queue, message_id=self.id, lock_token=self.token or "")


@dataclass(kw_only=True)
class Reference:
    """Queues, topics and messages, and every verb on them."""

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
    tokens: set[str] = field(default_factory=set)
    saves: list[dict[str, Any]] = field(default_factory=list)

    # The caller's transactions (1.1, 3.7)

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

    def must_exist(self, queue: str) -> Options:
        if queue not in self.queues:
            raise QueueNotFound(queue)
        return self.queues[queue]

    # Enqueue and publish (1, 5, 9); each answers the id and whether it was there before

    def enqueue(self, queue: str, new: New) -> tuple[int, bool]:
        self.check(queue, new)
        return self.store(queue, new)

    def enqueue_many(self, queue: str, news: Sequence[New]) -> list:
        for new in news:
            self.check_values(queue, new)
        for new in news:
            self.check(queue, new)
        self.must_exist(queue)
        return [self.store_or_conflict(queue, new) for new in news]

    def publish(self, topic: str, new: New) -> dict[str, tuple[int, bool]]:
        self.check_values(topic, new)
        if topic not in self.topics:
            raise TopicNotFound(topic)
        wanting = [queue for queue, wants in self.topics[topic].items() if wants(new)]
        with self.all_or_nothing():
            return {queue: self.enqueue(queue, new) for queue in wanting}

    def check_values(self, queue: str, new: New) -> None:
        if new.priority and new.group:
            raise PriorityRefused(queue)
        if new.ttl == 0:
            raise ValueError("ttl")

    def check(self, queue: str, new: New) -> None:
        self.check_values(queue, new)
        mode = self.must_exist(queue).ordering_mode
        if mode == "group_fifo" and new.group is None:
            raise GroupRequired(queue)
        if mode == "strict_fifo" and new.priority:
            raise PriorityRefused(queue)

    def store_or_conflict(self, queue: str, new: New) -> Any:
        try:
            return self.store(queue, new)
        except DuplicateConflict:
            return DuplicateConflict

    def store(self, queue: str, new: New) -> tuple[int, bool]:
        key = (queue, "body", new.body) if new.message_id is None else (queue, "id", new.message_id)
        window = self.queues[queue].dedup_window
        if window and key in self.seen:
            body, original, forgotten_at = self.seen[key]
            if forgotten_at > self.now and body == new.body:
                return original, True
            if forgotten_at > self.now:
                raise DuplicateConflict(queue, new.message_id, original)
        record = self.add(queue, new, delay=new.delay or 0)
        ttls = [ttl for ttl in (new.ttl, self.queues[queue].default_ttl) if ttl]
        record.expires_at = record.visible_at + min(ttls) if ttls else 0
        if window:
            self.seen[key] = new.body, record.id, self.now + window
        return record.id, False

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

    # Lines (6): each has one head among its unfinished messages, and only the head is claimable

    def line(self, record: Record) -> tuple[str, str] | None:
        if self.queues[record.queue].ordering_mode == "strict_fifo":
            return record.queue, ""
        return None if record.new.group is None else (record.queue, record.new.group)

    def enter(self, record: Record) -> None:
        """A new message goes behind; a returned one ahead of a later head that is at rest."""
        line = self.line(record)
        if line is None:
            return
        head = self.heads.setdefault(line, record.id)
        if record.id < head and self.messages[head].state in ("active", "scheduled"):
            self.heads[line] = record.id

    def leave(self, record: Record) -> None:
        """The head's place goes to the earliest message behind it."""
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

    def over(self, record: Record) -> bool:
        return 0 < record.expires_at <= self.now

    # Claim (2, 4.5)

    def claimable(self, queue: str) -> list[Record]:
        return sorted(self.eligible(queue, "active"), key=lambda m: (-m.priority, m.id))

    def eligible(self, queue: str, state: str) -> list[Record]:
        if self.queues[queue].paused:
            return []
        found = [m for m in self.messages.values() if (m.queue, m.state) == (queue, state)]
        return [m for m in found if self.is_head(m) and not self.over(m)]

    def claim(
        self, queue: str, limit: int, lock: int | None, attempt: str | None, tokens: Sequence[str]
    ) -> list[Record]:
        self.refuse_in_transaction()
        self.must_exist(queue)
        leases, forgotten_at = self.attempts.get((queue, attempt or ""), ([], 0))
        if forgotten_at > self.now:
            return [self.messages[lease.message_id] for lease in leases if self.held(lease)]
        taken = self.lock(self.claimable(queue)[:limit], lock, tokens)
        if attempt and taken:
            leases = [record.lease for record in taken]
            self.attempts[queue, attempt] = leases, self.now + HALF_AN_HOUR
        return taken

    def claim_deferred(
        self, queue: str, ids: Iterable[int], lock: int | None, tokens: Sequence[str]
    ) -> list[Record]:
        self.refuse_in_transaction()
        self.must_exist(queue)
        wanted = [m for m in self.eligible(queue, "deferred") if m.id in set(ids)]
        return self.lock(wanted, lock, tokens)

    def claim_and_delete(self, queue: str, limit: int) -> list[Record]:
        self.must_exist(queue)
        taken = self.claimable(queue)[:limit]
        for record in taken:
            record.deliveries += 1
            self.delete(record, "claimed and deleted")
        return taken

    def refuse_in_transaction(self) -> None:
        if self.saves:
            raise TransactionRefused

    def lock(
        self, records: Sequence[Record], lock: int | None, tokens: Sequence[str]
    ) -> list[Record]:
        assert len(set(tokens) - self.tokens) == len(tokens), "a token was used before"
        self.tokens.update(tokens)
        missing = [f"missing token {n}" for n in range(len(tokens), len(records))]
        for record, token in zip(records, [*tokens, *missing], strict=False):
            record.state, record.token = "locked", token
            record.locked_until = self.now + (lock or self.queues[record.queue].lock_duration)
            record.deliveries, record.delivered = record.deliveries + 1, True
        return list(records)

    # Settle (3, 4)

    def held(self, lease: Lease) -> Record | None:
        """The message, if exactly this lease on it is alive; at its deadline it is not."""
        record = self.messages.get(lease.message_id)
        if record is None or record.state != "locked" or record.lease != lease:
            return None
        return record if record.locked_until > self.now else None

    def settle(self, lease: Lease, request: tuple, *, rest: int = 0) -> None:
        """`request`: the verb and the arguments that change its effect; `rest`: the backoff."""
        record = self.held(lease)
        if record is not None:
            self.receipts[lease] = request, self.now + HALF_AN_HOUR
            self.carry_out(record, request, rest)
            return
        settled, forgotten_at = self.receipts.get(lease, ((), 0))
        if settled != request or forgotten_at <= self.now:
            raise LockLost(lease.queue, lease.message_id, request[0])

    def settles(self, lease: Lease, request: tuple, *, rest: int = 0) -> bool:
        try:
            self.settle(lease, request, rest=rest)
        except LockLost:
            return False
        return True

    def carry_out(self, record: Record, request: tuple, rest: int) -> None:
        match request:
            case ("complete",) if self.queues[record.queue].retain_completed:
                self.finish(record, "completed")
            case ("complete",):
                self.delete(record, "completed")
            case ("abandon", delay):
                self.give_back(record, self.backoff(record, rest) if delay is None else delay)
            case ("reject", reason, description):
                self.bury(record, reason, description)
            case ("defer",):
                record.state, record.token = "deferred", None

    def bound(self, record: Record) -> int:
        return record.new.bound or self.queues[record.queue].max_delivery_count

    def give_back(self, record: Record, delay: int) -> None:
        if record.deliveries >= self.bound(record):
            self.bury(record, "MaxDeliveryCountExceeded")
        else:
            self.wait(record, delay)

    def backoff(self, record: Record, rest: int) -> int:
        """Between a half and the whole of base * 2 ** (deliveries - 1), capped."""
        if record.deliveries < self.bound(record):
            options = self.queues[record.queue]
            most = min(options.backoff_base * 2 ** (record.deliveries - 1), options.backoff_max)
            assert most // 2 <= rest <= most
        return rest

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

    def renew(self, leases: Sequence[Lease], lock: int | None) -> list[bool]:
        records = [self.held(lease) for lease in leases]
        for record in filter(None, records):
            until = self.now + (lock or self.queues[record.queue].lock_duration)
            record.locked_until = max(record.locked_until, until)
        return [record is not None for record in records]

    # Schedules, dead letters (7, 8)

    def cancel(self, id: int) -> bool:
        record = self.messages.get(id)
        if record is None or record.state != "scheduled" or record.delivered:
            return False
        self.delete(record, "cancelled")
        return True

    def dead(self, queue: str) -> list[Record]:
        """The longest dead first."""
        found = [m for m in self.messages.values() if (m.queue, m.state) == (queue, "dead_lettered")]
        return sorted(found, key=lambda m: (m.finished_at, m.id))

    def dead_ids(self, queue: str, limit: int | None = None, age: int | None = None) -> list[int]:
        self.must_exist(queue)
        dead = self.dead(queue)
        return [m.id for m in dead if age is None or m.finished_at <= self.now - age][:limit]

    def redrive(
        self, ids: Sequence[int], *, into: str | None = None, interval: int = 0
    ) -> list[int]:
        """Those at work again, under their new ids if they were moved."""
        places = {id: place for place, id in reversed(list(enumerate(ids)))}
        dead = [self.messages[id] for id in sorted(places) if id in self.messages]
        dead = [m for m in dead if m.state == "dead_lettered"]
        if into is not None and self.must_exist(into).ordering_mode == "group_fifo":
            for record in dead:
                if record.new.group is None:
                    raise GroupRequired(into)
        delays = [places[m.id] * interval for m in dead]
        return [self.return_one(*each, into) for each in zip(dead, delays, strict=True)]

    def return_one(self, record: Record, delay: int, into: str | None) -> int:
        if into is not None:
            moved = self.add(into, record.new, delay=delay)
            if self.queues[into].ordering_mode == "strict_fifo":
                moved.priority = 0
            moved.delivered = record.delivered
            self.delete(record, f"now {moved.id}")
            return moved.id
        record.deliveries = record.expires_at = record.finished_at = 0
        record.reason = record.description = None
        self.wait(record, delay)
        self.enter(record)
        return record.id

    def purge(self, ids: Iterable[int]) -> int:
        wanted = [self.messages[id] for id in set(ids) if id in self.messages]
        dead = [m for m in wanted if m.state == "dead_lettered"]
        for record in dead:
            self.delete(record, "purged")
        return len(dead)

    # The reaper (10, 8.1, 8.3, 7.4)

    def reap(self) -> None:
        everything = sorted(self.messages.values(), key=lambda m: m.id)
        for record in everything:
            if record.state == "locked" and record.locked_until <= self.now:
                self.give_back(record, 0)
            if record.state == "scheduled" and record.visible_at <= self.now:
                record.state = "active"
            if record.state in UNFINISHED - {"locked"} and self.over(record):
                self.expire(record)
            retained = self.queues[record.queue].retain_completed
            if record.state == "completed" and record.finished_at + retained <= self.now:
                self.delete(record, "completed")
        for queue in self.queues:
            self.prune_dead(queue)
        self.forget()

    def expire(self, record: Record) -> None:
        if self.queues[record.queue].dead_letter_on_expire:
            self.bury(record, "TTLExpired")
        else:
            self.delete(record, "expired")

    def prune_dead(self, queue: str) -> None:
        dead = self.dead(queue)
        while dead and self.too_much(dead, self.queues[queue]):
            self.delete(dead.pop(0), "pruned")

    def too_much(self, dead: Sequence[Record], options: Options) -> bool:
        age, count, size = options.dlq_max_age, options.dlq_max_count, options.dlq_max_bytes
        return (
            bool(age and dead[0].finished_at + age <= self.now)
            or bool(count and len(dead) > count)
            or bool(size and sum(len(m.new.body) for m in dead) > size)
        )

    def forget(self) -> None:
        for table in (self.receipts, self.attempts, self.seen):
            for key in [key for key, value in table.items() if value[-1] <= self.now]:
                del table[key]

    def deadlines(self) -> list[int]:
        """Every moment at which something ends by itself."""
        ends = {t for m in self.messages.values() for t in (m.locked_until, m.visible_at, m.expires_at)}
        kept = (self.receipts, self.attempts, self.seen)
        return sorted(ends | {value[-1] for table in kept for value in table.values()})

    def counts(self, queue: str) -> Counter[str]:
        return Counter(m.state for m in self.messages.values() if m.queue == queue)
