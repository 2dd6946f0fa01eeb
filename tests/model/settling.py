"""Rules 3, 4, 16 and 18: settle, renew and set the progress, under any lease."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from django_mqlite.models import Message
from django_mqlite.types import Abandonment, Completion, Deferral, Rejection
from django_mqlite.verbs.settle import Settlement
from tests.model.claiming import Claiming
from tests.model.strategies import (
    earlies,
    limits,
    locks,
    parts,
    places,
    queues,
    requests,
    some_places,
)
from tests.model.world import seconds


def outcome_of(request: tuple) -> Any:
    match request:
        case ("complete",):
            return Completion()
        case ("abandon", delay):
            return Abandonment(delay_ms=delay)
        case ("snooze", delay):
            return Abandonment(delay_ms=delay, counts=False)
        case ("reject", reason, description):
            return Rejection(reason=reason, description=description)
        case _:
            return Deferral()


class Settling(Claiming):
    """Settle and renew single messages and batches, and repeat requests."""

    @rule(queue=queues, place=places, request=requests)
    def settle(self, queue: str, place: int, request: tuple) -> None:
        self.provide(queue, "locked")
        if self.world.held:
            self.world.settle(self.world.pick(place), request)

    @rule(queue=queues, delay=st.sampled_from([None, 0, 5_000]))
    def abandon(self, queue: str, delay: int | None) -> None:
        self.settle(queue, 0, ("abandon", delay))

    @rule(queue=queues, times=st.integers(1, 4))
    def snooze(self, queue: str, times: int) -> None:
        """Put a message off again and again; after the limit, each retry counts."""
        for _ in range(times):
            self.settle(queue, 0, ("snooze", 1_000))
            self.clock.ms += 1_000
            self.reap()
            self.claim(queue, 4, None, None)

    @rule(queue=queues, place=places, fraction=st.sampled_from([0.25, 0.5, 1]))
    def set_progress(self, queue: str, place: int, fraction: float) -> None:
        """Set the progress under a live or a stale lease, at most once a second."""
        self.provide(queue, "locked")
        if not self.world.held:
            return
        message = self.world.pick(place)
        lease, since = message.lease, abs(self.clock.ms - message._progress_at)
        assert lease is not None

        def expected() -> None:
            if fraction == 1 or since >= 1_000:
                self.model.set_progress(lease, fraction)

        self.both(lambda: message.set_progress(fraction), expected)

    @rule(queue=queues)
    def complete(self, queue: str) -> None:
        self.settle(queue, 0, ("complete",))

    @rule(queue=queues, request=requests, early=earlies)
    def settle_at_the_deadline(self, queue: str, request: tuple, early: int) -> None:
        """Settle at the deadline of the lease, or a millisecond before."""
        self.provide(queue, "locked")
        if self.world.held:
            message = self.world.pick(0)
            record = self.model.messages.get(message.pk)
            if record is not None and record.locked_until > self.clock.ms:
                self.clock.ms = record.locked_until - early
            self.world.settle(message, request)

    @precondition(lambda self: self.world.requests)
    @rule(early=earlies)
    def settle_again_when_the_receipt_ends(self, early: int) -> None:
        message, request = self.world.requests[-1]
        receipt = self.model.receipts.get(message.lease)
        if receipt is not None and receipt[-1] > self.clock.ms:
            self.clock.ms = receipt[-1] - early
        self.world.settle(message, request)

    @precondition(lambda self: self.world.requests)
    @rule(place=st.integers(0, 4))
    def settle_again(self, place: int) -> None:
        """Repeat a request, which succeeds while its receipt is valid."""
        requests = self.world.requests
        self.world.settle(*requests[-1 - place % len(requests)])

    @precondition(lambda self: self.world.requests)
    @rule(place=st.integers(0, 4), request=requests)
    def settle_otherwise(self, place: int, request: tuple) -> None:
        """Settle a lease again with another verb or other arguments."""
        requests = self.world.requests
        self.world.settle(requests[-1 - place % len(requests)][0], request)

    @rule(queue=queues, place=places, part=parts, request=requests)
    def settle_with_a_part_of_another_lease(
        self, queue: str, place: int, part: str, request: tuple
    ) -> None:
        self.provide(queue, "locked")
        if self.world.held:
            self.world.settle(self.world.forged(self.world.pick(0), place, part), request)

    @rule(queue=queues, at=some_places)
    def complete_many(self, queue: str, at: Sequence[int]) -> None:
        self.provide(queue, "locked")
        if self.world.held:
            self.complete_all([self.world.pick(place) for place in at])

    def complete_all(self, messages: Sequence[Message]) -> None:
        leases = [lease for message in messages if (lease := message.lease)]
        self.both(
            lambda: Message.objects.complete_many(messages),
            lambda: [self.model.settles(lease, ("complete",)) for lease in leases],
        )

    @precondition(lambda self: self.world.held)
    @rule(place=places, backwards=st.booleans(), renew=st.booleans())
    def settle_every_lease_of_a_message(self, place: int, backwards: bool, renew: bool) -> None:
        """Settle or renew every lease of a message in one batch; only the live one holds."""
        pk = self.world.pick(place).pk
        leases = [message for message in self.world.held if message.pk == pk]
        leases = leases[::-1] if backwards else leases
        if renew:
            self.renew_all(leases, 60_000)
        else:
            self.complete_all(leases)

    @rule(queue=queues, at=some_places, lock=locks)
    def renew_many(self, queue: str, at: Sequence[int], lock: int | None) -> None:
        self.provide(queue, "locked")
        if self.world.held:
            self.renew_all([self.world.pick(place) for place in at], lock)

    def renew_all(self, messages: Sequence[Message], lock: int | None) -> None:
        leases = [lease for message in messages if (lease := message.lease)]
        self.both(
            lambda: Message.objects.renew_many(messages, seconds(lock)),
            lambda: self.model.renew(leases, lock),
        )

    @precondition(lambda self: self.world.held and not self.world.open)
    @rule(at=some_places, settled=requests, queue=queues, limit=limits)
    def settle_and_claim(self, at: Sequence[int], settled: tuple, queue: str, limit: int) -> None:
        """Settle messages and claim more in one transaction, as a worker does."""
        messages = {m.lease: m for m in (self.world.pick(place) for place in at)}
        settlements = [
            Settlement(message=m, outcome=outcome_of(settled)) for m in messages.values()
        ]
        found: list[bool] = []

        def real() -> list[Message]:
            held, claimed = Message.objects.settle_and_claim(
                settlements, [queue], limit=limit, worker="worker"
            )
            found.extend(held)
            return claimed

        def expected(tokens: list[str]) -> list:
            rests = {lease: self.world.rest_of(lease.id) for lease in messages if lease}
            held = [self.model.settles(lease, settled, rest=rests[lease]) for lease in rests]
            assert found == held
            return self.model.claim(queue, limit, None, None, tokens)

        self.world.claim(real, expected)

    @rule()
    def crash(self) -> None:
        """Lose the open transaction and every claimed message in memory."""
        self.teardown()
        self.world.held.clear()
        self.world.requests.clear()
