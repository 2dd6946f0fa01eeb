"""A reference model of docs/conformance.md over plain dicts, without SQL.

The comments name the rules. The caller sets `now` and passes what is random in the real queue:
lock tokens, and the delays of a backoff.
"""

from collections.abc import Collection, Iterable, Sequence
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
from tests.model.book import UNFINISHED, Book
from tests.model.values import New, Options, Record

HALF_AN_HOUR = 30 * 60_000

MAX_UNCOUNTED = 2
"""The limit of rule 18.3 in the model test, which replaces that of the store."""


def in_claim_order(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda m: (-m.priority, m.id))


class Reference(Book):
    """The effect, the result and the errors of every verb."""

    def require_queue(self, queue: str) -> Options:
        if queue not in self.queues:
            raise QueueNotFound(queue)
        return self.queues[queue]

    # Rules 1, 5 and 9: enqueue and publish; each answers the id and whether it was there before

    def enqueue(self, queue: str, new: New) -> tuple[int, bool]:
        self.check(queue, new)
        return self.store(queue, new)

    def enqueue_many(self, queue: str, news: Sequence[New]) -> list:
        for new in news:
            self.check_values(queue, new)
        for new in news:
            self.check(queue, new)
        self.require_queue(queue)
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
        mode = self.require_queue(queue).ordering_mode
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
        holder = self.holder(queue, new.unique)
        if holder is not None and not (self.over(holder) and holder.state != "locked"):
            return holder.id, True
        if holder is not None:
            self.expire(holder)
        record = self.add(queue, new, delay=new.delay or 0)
        ttls = [ttl for ttl in (new.ttl, self.queues[queue].default_ttl) if ttl]
        record.expires_at = record.visible_at + min(ttls) if ttls else 0
        if window:
            self.seen[key] = new.body, record.id, self.now + window
        return record.id, False

    # Rule 13: unique keys

    def holder(self, queue: str, key: str | None) -> Record | None:
        """The unfinished message of the queue that has this unique key."""
        of_key = [m for m in self.of(queue) if m.new.unique == key and m.state in UNFINISHED]
        return of_key[0] if key is not None and of_key else None

    def with_free_keys(self, dead: Sequence[Record], into: str | None) -> list[Record]:
        """Those that can be redriven, the first of each unique key that is free."""
        kept: list[Record] = []
        for record in dead:
            queue, key = into or record.queue, record.new.unique
            others = [(into or m.queue, m.new.unique) for m in kept]
            if self.holder(queue, key) is None and (key is None or (queue, key) not in others):
                kept.append(record)
        return kept

    # Rules 2 and 4.5: claim

    def claimable(self, queue: str) -> list[Record]:
        return in_claim_order(self.eligible(queue, "active"))

    def eligible(self, queue: str, state: str) -> list[Record]:
        if self.queues[queue].paused:
            return []
        found = [m for m in self.of(queue) if m.state == state]
        return [m for m in found if self.is_head(m) and not self.over(m)]

    def claim(
        self, queue: str, limit: int, lock: int | None, attempt: str | None, tokens: Sequence[str]
    ) -> list[Record]:
        self.refuse_in_transaction()
        self.require_queue(queue)
        leases, forgotten_at = self.attempts.get((queue, attempt or ""), ([], 0))
        if forgotten_at > self.now:
            return [self.messages[lease.id] for lease in leases if self.held(lease)]
        taken = self.lock(self.claimable(queue)[: min(limit, self.room(queue))], lock, tokens)
        self.take(queue, len(taken))
        if attempt and taken:
            leases = [record.lease for record in taken]
            self.attempts[queue, attempt] = leases, self.now + HALF_AN_HOUR
        return taken

    def claim_deferred(
        self, queue: str, ids: Iterable[int], lock: int | None, tokens: Sequence[str]
    ) -> list[Record]:
        self.refuse_in_transaction()
        self.require_queue(queue)
        eligible = {m.id: m for m in self.eligible(queue, "deferred")}
        wanted = [eligible[id] for id in dict.fromkeys(ids) if id in eligible]
        taken = self.lock(in_claim_order(wanted[: self.room(queue)]), lock, tokens)
        self.take(queue, len(taken))
        return taken

    def claim_and_delete(self, queue: str, limit: int) -> list[Record]:
        self.require_queue(queue)
        taken: list[Record] = []
        most = min(limit, self.room(queue))
        # The next message of a line is claimable when the one before it is deleted.
        while len(taken) < most and (claimable := self.claimable(queue)):
            record = claimable[0]
            record.deliveries += 1
            self.take(queue, 1)
            self.delete(record, "claimed and deleted")
            taken.append(record)
        if len(taken) < limit:
            self.take(queue, 0)
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
            record.deliveries, record.handled = record.deliveries + 1, True
        return list(records)

    # Rules 3 and 4: settle

    def held(self, lease: Lease) -> Record | None:
        """Return the message if exactly this lease is live; at its deadline it is not."""
        record = self.messages.get(lease.id)
        if record is None or record.state != "locked" or record.lease != lease:
            return None
        return record if record.locked_until > self.now else None

    def settle(self, lease: Lease, request: tuple, *, rest: int = 0) -> None:
        """Settle a lease. `request` is the verb and the arguments that change its effect."""
        record = self.held(lease)
        counted = ("abandon", *request[1:]) if request[0] == "snooze" else request
        if record is not None:
            if not record.expires_at and record.uncounted >= MAX_UNCOUNTED:
                request = counted
            self.receipts[lease] = request, self.now + HALF_AN_HOUR
            self.carry_out(record, request, rest)
            return
        settled, forgotten_at = self.receipts.get(lease, ((), 0))
        if settled not in (request, counted) or forgotten_at <= self.now:
            raise LockLost(lease.queue, lease.id, request[0])

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
            case ("snooze", delay):
                record.deliveries, record.uncounted = record.deliveries - 1, record.uncounted + 1
                self.wait(record, delay)
                self.enter(record)
            case ("reject", reason, description):
                self.bury(record, reason, description)
            case ("defer",):
                record.state, record.token = "deferred", None

    def set_progress(self, lease: Lease, fraction: float) -> None:
        record = self.held(lease)
        if record is None:
            raise LockLost(lease.queue, lease.id, "set the progress of")
        record.progress = fraction

    def bound(self, record: Record) -> int:
        return record.new.bound or self.queues[record.queue].max_delivery_count

    def give_back(self, record: Record, delay: int) -> None:
        if record.deliveries >= self.bound(record):
            self.bury(record, "MaxDeliveryCountExceeded")
        else:
            self.wait(record, delay)
            self.enter(record)

    def backoff(self, record: Record, rest: int) -> int:
        """Check that the delay is between half and the whole of the exponential backoff."""
        if record.deliveries < self.bound(record):
            options = self.queues[record.queue]
            most = min(options.backoff_base * 2 ** (record.deliveries - 1), options.backoff_max)
            assert most // 2 <= rest <= most
        return rest

    def renew(self, leases: Sequence[Lease], lock: int | None) -> list[bool]:
        records = [self.held(lease) for lease in leases]
        for record in filter(None, records):
            until = self.now + (lock or self.queues[record.queue].lock_duration)
            record.locked_until = max(record.locked_until, until)
        return [record is not None for record in records]

    # Rules 7 and 8: schedules and dead letters

    def cancel(self, id: int) -> bool:
        record = self.messages.get(id)
        if record is None or record.state != "scheduled" or record.handled:
            return False
        self.delete(record, "cancelled")
        return True

    def run_now(self, id: int) -> bool:
        record = self.messages.get(id)
        if record is None or record.state != "scheduled":
            return False
        self.wait(record, 0)
        return True

    def release(self, id: int, token: str | None) -> bool:
        """Release the lease, expired or not, if the token is its own."""
        record = self.messages.get(id)
        if record is None or record.state != "locked" or record.token != token:
            return False
        self.give_back(record, 0)
        return True

    # Rule 15: discard and activate

    def discard(self, id: int, states: Collection[str] = UNFINISHED) -> bool:
        record = self.messages.get(id)
        if record is None or record.state not in states:
            return False
        self.bury(record, "Discarded")
        return True

    def discard_queue(self, queue: str, state: str | None) -> int:
        self.require_queue(queue)
        states = UNFINISHED if state is None else {state}
        return sum([self.discard(m.id, states) for m in self.of(queue)])

    def activate(self, id: int) -> bool:
        record = self.messages.get(id)
        if record is None or record.state != "deferred":
            return False
        self.wait(record, 0)
        self.enter(record)
        record.activated = True
        return True

    def activate_queue(self, queue: str) -> int:
        self.require_queue(queue)
        return sum([self.activate(m.id) for m in self.of(queue)])

    def dead(self, queue: str) -> list[Record]:
        """Return the dead letters of the queue, the oldest first."""
        found = [m for m in self.of(queue) if m.state == "dead_lettered"]
        return sorted(found, key=lambda m: (m.finished_at, m.id))

    def dead_ids(self, queue: str, limit: int | None = None, age: int | None = None) -> list[int]:
        self.require_queue(queue)
        dead = self.dead(queue)
        return [m.id for m in dead if age is None or m.finished_at <= self.now - age][:limit]

    def redrive(
        self, ids: Sequence[int], *, into: str | None = None, interval: int = 0
    ) -> list[int]:
        """Redrive dead letters; return their ids, new ones if they were moved."""
        places = {id: place for place, id in reversed(list(enumerate(ids)))}
        dead = [self.messages[id] for id in sorted(places) if id in self.messages]
        dead = [m for m in dead if m.state == "dead_lettered"]
        if into is not None:
            self.require_queue(into)
        dead = self.with_free_keys(dead, into)
        if into is not None and self.require_queue(into).ordering_mode == "group_fifo":
            for record in dead:
                if record.new.group is None:
                    raise GroupRequired(into)
        delays = [places[m.id] * interval for m in dead]
        return [self.return_one(*each, into) for each in zip(dead, delays, strict=True)]

    def return_one(self, record: Record, delay: int, into: str | None) -> int:
        if into is not None:
            moved = self.add(into, record.new, delay=delay)
            strict = self.queues[into].ordering_mode == "strict_fifo"
            moved.priority = 0 if strict else record.priority
            moved.handled = True
            self.delete(record, f"now {moved.id}")
            return moved.id
        record.deliveries = record.expires_at = record.finished_at = 0
        record.reason = record.description = record.progress = None
        record.uncounted = 0
        record.handled = True
        self.wait(record, delay)
        self.enter(record)
        return record.id

    def purge(self, ids: Iterable[int]) -> int:
        wanted = [self.messages[id] for id in set(ids) if id in self.messages]
        dead = [m for m in wanted if m.state == "dead_lettered"]
        for record in dead:
            self.delete(record, "purged")
        return len(dead)

    # Rules 7.4, 8 and 10: the reaper

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
