"""Rules 2 and 4.5: claims."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_mqlite.models import Message, Queue
from tests.model.machine import rate_option
from tests.model.sending import Sending
from tests.model.strategies import (
    any_queue,
    attempts,
    earlies,
    in_flights,
    limits,
    locks,
    moments,
    queues,
    rates,
    some_places,
)
from tests.model.values import New
from tests.model.world import seconds

REQUESTS = {"dead_lettered": ("reject", "R", ""), "deferred": ("defer",)}
"""The settle that brings a message into the state."""


class Claiming(Sending):
    """Claim, by the queue's order and by id, with and without a lease; pause and resume."""

    def provide(self, queue: str, state: str) -> None:
        """Make a message in this state, unless there is one, so that the rule has an effect."""
        if self.world.open or queue not in self.model.queues or self.model.counts(queue)[state]:
            return
        if state == "scheduled":
            self.enqueue(queue, New(group="a", delay=20_000))
        elif not self.world.live(queue):
            self.enqueue(queue, New(group="a", body=b"bb"))
            self.claim(queue, 4, None, None)
        if state in REQUESTS and self.world.live(queue):
            self.world.settle(self.world.live(queue)[0], REQUESTS[state])

    @rule(queue=any_queue, limit=limits, lock=locks, attempt=attempts)
    def claim(self, queue: str, limit: int, lock: int | None, attempt: str | None) -> None:
        self.world.claim(
            lambda: Message.objects.claim(
                queue, limit=limit, lock_duration=seconds(lock), attempt_id=attempt
            ),
            lambda tokens: self.model.claim(queue, limit, lock, attempt, tokens),
        )
        self.end_all()

    @rule(priorities=st.lists(st.integers(-1, 2), min_size=2, max_size=4), leased=st.booleans())
    def claim_the_most_urgent(self, priorities: Sequence[int], leased: bool) -> None:
        self.enqueue_many(
            "loose", [New(priority=priority, body=b"urgent") for priority in priorities]
        )
        if leased:
            self.claim("loose", 1, None, None)
        else:
            self.claim_and_delete("loose", 1)

    @rule(lock=locks)
    def claim_everywhere(self, lock: int | None) -> None:
        for queue in self.model.queues:
            self.claim(queue, 2, lock, None)

    @rule(queue=queues, when=moments, early=earlies)
    def claim_again(self, queue: str, when: str, early: int) -> None:
        """Repeat an attempt before and after its leases and its record expire."""
        self.enqueue(queue, New(group="a"))
        self.claim(queue, 2, None, "x")
        leases, forgotten_at = self.model.attempts.get((queue, "x"), ([], 0))
        records = [record for lease in leases if (record := self.model.held(lease))]
        if when == "forgotten":
            self.clock.ms = max(self.clock.ms, forgotten_at - early)
        elif when != "at once" and records:
            self.clock.ms = max(record.locked_until for record in records) - early
        if when == "claimed again":
            self.reap()
            self.claim(queue, 4, None, None)
        self.enqueue(queue, New(group=when))
        self.claim(queue, 2, None, "x")

    @rule(queue=queues, bound=st.sampled_from([None, 1, 3]), deliveries=st.integers(1, 4))
    def poison(self, queue: str, bound: int | None, deliveries: int) -> None:
        """Let the lease of a message expire again and again."""
        self.enqueue(queue, New(group="a", bound=bound))
        for _ in range(deliveries):
            self.claim(queue, 4, 1_000, None)
            self.clock.ms += 1_000
            self.reap()

    @rule(queue=queues, claimed=st.booleans(), early=earlies)
    def reap_when_the_time_to_live_ends(self, queue: str, claimed: bool, early: int) -> None:
        self.enqueue(queue, New(group="a", ttl=10_000))
        if claimed:
            self.claim(queue, 4, 60_000, None)
        self.clock.ms += 10_000 - early
        self.reap()

    @rule(queue=queues, at=some_places, lock=locks, paused=st.sampled_from([False, False, True]))
    def claim_deferred(self, queue: str, at: Sequence[int], lock: int | None, paused: bool) -> None:
        self.provide(queue, "deferred")
        self.pause_or_resume(queue, paused)
        ids = self.world.ids(at, "deferred")
        self.world.claim(
            lambda: Message.objects.claim_deferred(queue, ids, lock_duration=seconds(lock)),
            lambda tokens: self.model.claim_deferred(queue, ids, lock, tokens),
        )
        self.end_all()

    @rule(queue=any_queue, limit=limits)
    def claim_and_delete(self, queue: str, limit: int) -> None:
        self.both(
            lambda: [
                (m.pk, m.delivery_count, m.lease, m.locked_until)
                for m in Message.objects.claim_and_delete(queue, limit=limit)
            ],
            lambda: [
                (m.id, m.deliveries, None, None) for m in self.model.claim_and_delete(queue, limit)
            ],
        )

    @rule(queue=queues, max_in_flight=in_flights, rate=rates)
    def change_limits(self, queue: str, max_in_flight: int, rate: tuple[int, int] | None) -> None:
        self.both(
            lambda: (
                Queue.objects.configure(
                    queue, max_in_flight=max_in_flight or None, rate=rate_option(rate)
                )
                and None
            ),
            lambda: self.model.limit(queue, max_in_flight, rate),
        )

    @rule(queue=queues, paused=st.sampled_from([False, False, True]))
    def pause_or_resume(self, queue: str, paused: bool) -> None:
        def expected() -> bool:
            before, self.model.queues[queue].paused = self.model.queues[queue].paused, paused
            return before != paused

        row = Queue.objects.get(pk=queue)
        self.both(row.pause if paused else row.resume, expected)
