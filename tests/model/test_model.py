"""The queue does, in whatever order it is asked, what the reference model of its rules does."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from django.db import connection
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_mqlite import Draft
from django_mqlite.deliveries import Settlement
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from django_mqlite.types import Abandonment, Completion, Deferral, Rejection
from django_mqlite.worker.sweeps import run_all
from tests.model.reference import New, Options, Reference
from tests.model.strategies import (
    MODES,
    SUBSCRIPTIONS,
    TOPICS,
    any_queue,
    attempts,
    lengths,
    limits,
    locks,
    news,
    options,
    parts,
    places,
    queues,
    requests,
    selections,
    some_places,
)
from tests.model.world import World, empty_tables, options_of, seconds, stored
from tests.support.fake_clock import START_MS, FakeClock

WANTS = {
    "news-all": lambda new: True,
    "news-red": lambda new: new.subject == "red",
    "odd-broken": lambda new: False,  # no message has properties: a filter that fails is false
}
IN_SECONDS = {"lock_duration", "backoff_base", "backoff_max", "default_ttl", "dedup_window",
              "retain_completed", "dlq_max_age"}  # fmt: skip
OPTIONAL = {"dlq_max_age", "dlq_max_count", "dlq_max_bytes"}



REQUESTS = {"dead_lettered": ("reject", "R", ""), "deferred": ("defer",)}
"""What brings a message into the state."""


def queue_options(options: Options) -> dict[str, Any]:
    """As create_queue() takes them."""
    given = asdict(options)
    del given["paused"]
    return {
        name: value / 1000 if name in IN_SECONDS else value
        for name, value in given.items()
        if value or name not in OPTIONAL
    }


def outcome_of(request: tuple) -> Any:
    match request:
        case ("complete",):
            return Completion()
        case ("abandon", delay):
            return Abandonment(delay_ms=delay)
        case ("reject", reason, description):
            return Rejection(reason=reason, description=description)
        case _:
            return Deferral()


class QueueMachine(RuleBasedStateMachine):
    """Every verb, on random and on deliberately wrong arguments."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        empty_tables()
        clock.ms = START_MS
        self.clock = clock
        self.world = World(clock, Reference(queues={}))

    @property
    def model(self) -> Reference:
        return self.world.model

    def both(self, real: Any, expected: Any) -> Any:
        return self.world.both(real, expected)

    @initialize(drawn=st.tuples(*[options] * len([*MODES, *SUBSCRIPTIONS])))
    def create(self, drawn: Sequence[Options]) -> None:
        own, subscribed = drawn[: len(MODES)], drawn[len(MODES) :]
        for (name, mode), given in zip(MODES.items(), own, strict=True):
            self.model.queues[name] = replace(given, ordering_mode=mode)
            Queue.objects.create_queue(name, **queue_options(self.model.queues[name]))
        self.model.queues |= dict(zip(SUBSCRIPTIONS, subscribed, strict=True))
        for topic, filters in TOPICS.items():
            self.model.topics[topic] = {name: WANTS[name] for name in filters}
            for name, filter in filters.items():
                given = queue_options(self.model.queues[name])
                Subscription.objects.subscribe(topic, name, filter=filter, **given)

    def teardown(self) -> None:
        self.end_all()

    @invariant()
    def queue_and_model_agree(self) -> None:
        self.world.compare()
        self.world.check_invariants()

    # Enqueue and publish

    @rule(queue=any_queue, new=news)
    def enqueue(self, queue: str, new: New) -> None:
        self.both(
            lambda: stored([Message.objects.enqueue(queue, new.body, **options_of(new))]),
            lambda: [self.model.enqueue(queue, new)],
        )

    @rule(queue=any_queue, many=st.lists(news, max_size=4))
    def enqueue_many(self, queue: str, many: Sequence[New]) -> None:
        drafts = [Draft(new.body, **options_of(new)) for new in many]
        self.both(
            lambda: stored(Message.objects.enqueue_many(queue, drafts)),
            lambda: self.model.enqueue_many(queue, many),
        )

    @rule(queue=st.sampled_from(["groups", "strict"]), count=limits)
    def enqueue_a_line(self, queue: str, count: int) -> None:
        """Plain messages that nothing refuses, one behind the other."""
        self.enqueue_many(queue, [New(group="a", body=bytes([n])) for n in range(count)])

    @rule(topic=st.sampled_from(["news", "news", "odd", "nothing"]), new=news)
    def publish(self, topic: str, new: New) -> None:
        published: list[Message] = []

        def real() -> dict:
            published.extend(Message.objects.publish(topic, new.body, **options_of(new)))
            return {m.queue: found for m, found in zip(published, stored(published), strict=True)}

        def expected() -> dict:
            made_up = published[0].message_id if published else "made up"
            copied = new if new.message_id else replace(new, message_id=made_up)
            return self.model.publish(topic, copied)

        self.both(real, expected)

    # Claim

    @rule(queue=any_queue, limit=limits, lock=locks, attempt=attempts)
    def claim(self, queue: str, limit: int, lock: int | None, attempt: str | None) -> None:
        self.world.claim(
            lambda: Message.objects.claim(
                queue, limit=limit, lock_duration=seconds(lock), attempt_id=attempt
            ),
            lambda tokens: self.model.claim(queue, limit, lock, attempt, tokens),
        )
        self.end_all()

    @rule(lock=locks)
    def claim_everywhere(self, lock: int | None) -> None:
        for queue in self.model.queues:
            self.claim(queue, 2, lock, None)

    @rule(queue=queues, at=some_places, lock=locks)
    def claim_deferred(self, queue: str, at: Sequence[int], lock: int | None) -> None:
        self.provide(queue, "deferred")
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

    def provide(self, queue: str, state: str) -> None:
        """Have a message in this state, so that the rule does not run into the void."""
        if self.world.open or queue not in self.model.queues or self.model.counts(queue)[state]:
            return
        if state == "scheduled":
            self.enqueue(queue, New(group="a", delay=20_000))
        elif not self.world.live(queue):
            self.enqueue(queue, New(group="a"))
            self.claim(queue, 4, None, None)
        if state in REQUESTS and self.world.live(queue):
            self.world.settle(self.world.live(queue)[0], REQUESTS[state])

    # Settle

    @rule(queue=queues, place=places, request=requests)
    def settle(self, queue: str, place: int, request: tuple) -> None:
        self.provide(queue, "locked")
        if self.world.held:
            self.world.settle(self.world.pick(place), request)

    @rule(queue=queues, delay=st.sampled_from([None, 0, 5_000]))
    def abandon(self, queue: str, delay: int | None) -> None:
        self.settle(queue, 0, ("abandon", delay))

    @rule(queue=queues)
    def complete(self, queue: str) -> None:
        self.settle(queue, 0, ("complete",))

    @precondition(lambda self: self.world.requests)
    @rule(place=st.integers(0, 4))
    def settle_again(self, place: int) -> None:
        """The identical request: a success while its receipt lives."""
        requests = self.world.requests
        self.world.settle(*requests[-1 - place % len(requests)])

    @precondition(lambda self: self.world.requests)
    @rule(place=st.integers(0, 4), request=requests)
    def settle_otherwise(self, place: int, request: tuple) -> None:
        """The same lease, another verb or other arguments."""
        requests = self.world.requests
        self.world.settle(requests[-1 - place % len(requests)][0], request)

    @rule(queue=queues, at=st.tuples(places, places), part=parts, request=requests)
    def settle_with_a_part_of_another_lease(
        self, queue: str, at: tuple[int, int], part: str, request: tuple
    ) -> None:
        self.provide(queue, "locked")
        if self.world.held:
            message, other = map(self.world.pick, at)
            self.world.settle(self.world.forged(message, other, part), request)

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
        """Stale leases and the live one in a batch: only the live one counts."""
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
    def exchange(self, at: Sequence[int], settled: tuple, queue: str, limit: int) -> None:
        """A worker's round: settle what has finished and claim more, in one transaction."""
        messages = {m.lease: m for m in (self.world.pick(place) for place in at)}
        settlements = [Settlement(message=m, outcome=outcome_of(settled)) for m in messages.values()]
        found: list[bool] = []

        def real() -> list[Message]:
            held, claimed = Message.objects.exchange(
                settlements, [queue], limit=limit, worker="worker"
            )
            found.extend(held)
            return claimed

        def expected(tokens: list[str]) -> list:
            rests = {lease: self.world.rest_of(lease.message_id) for lease in messages if lease}
            held = [self.model.settles(lease, settled, rest=rests[lease]) for lease in rests]
            assert found == held
            return self.model.claim(queue, limit, None, None, tokens)

        self.world.claim(real, expected)

    @rule()
    def crash(self) -> None:
        """The process is gone, its transaction with it, and whatever it had in its memory."""
        self.teardown()
        self.world.held.clear()
        self.world.requests.clear()

    # Schedules and dead letters

    @rule(queue=queues, place=places)
    def cancel(self, queue: str, place: int) -> None:
        self.provide(queue, "scheduled")
        (id,) = self.world.ids([place], "scheduled")
        self.both(lambda: Message.objects.cancel(id), lambda: self.model.cancel(id))

    @rule(queue=queues, at=some_places, into=st.sampled_from([None, None, *MODES, "nowhere"]))
    def redrive(self, queue: str, at: Sequence[int], into: str | None) -> None:
        self.provide(queue, "dead_lettered")
        ids = self.world.ids(at, "dead_lettered")
        self.both(
            lambda: DeadLetter.objects.redrive(ids, into=into),
            lambda: self.redriven(self.model.redrive(ids, into=into)),
        )

    @rule(queue=queues, rate=st.sampled_from([None, None, 1, 0.1]))
    def redrive_all(self, queue: str, rate: float | None) -> None:
        self.provide(queue, "dead_lettered")
        interval = int(1000 / rate) if rate else 0
        ids = sorted(self.model.messages)
        self.both(
            lambda: DeadLetter.objects.redrive(ids, rate=rate),
            lambda: self.redriven(self.model.redrive(ids, interval=interval)),
        )

    @rule(queue=any_queue, selection=selections, into=st.sampled_from([None, None, *MODES]))
    def redrive_queue(self, queue: str, selection: tuple, into: str | None) -> None:
        self.provide(queue, "dead_lettered")
        limit, age, rate = selection

        def expected() -> int:
            interval = 500 if rate else 0
            ids = self.dead_ids(queue, limit, age)
            return self.redriven(self.model.redrive(ids, into=into, interval=interval))

        self.both(
            lambda: DeadLetter.objects.redrive_queue(
                queue, limit=limit, older_than=seconds(age), into=into, rate=rate
            ),
            expected,
        )

    def dead_ids(self, queue: str, limit: int | None, age: int | None) -> list[int]:
        if age == 0:
            raise ValueError  # no bound: who means everything leaves it out
        return self.model.dead_ids(queue, limit, age)

    def redriven(self, ids: Sequence[int]) -> int:
        self.world.redriven.update(ids)
        return len(ids)

    @rule(queue=queues, at=some_places)
    def purge(self, queue: str, at: Sequence[int]) -> None:
        self.provide(queue, "dead_lettered")
        ids = self.world.ids(at, "dead_lettered")
        self.both(lambda: DeadLetter.objects.purge(ids), lambda: self.model.purge(ids))

    @rule(queue=any_queue, selection=selections)
    def purge_queue(self, queue: str, selection: tuple) -> None:
        self.provide(queue, "dead_lettered")
        limit, age, _ = selection

        def expected() -> int:
            if limit is None and age is None:
                raise ValueError
            return self.model.purge(self.dead_ids(queue, limit, age))

        self.both(
            lambda: DeadLetter.objects.purge_queue(queue, limit=limit, older_than=seconds(age)),
            expected,
        )

    # Queues, looked at and paused

    @rule(queue=queues, paused=st.sampled_from([False, False, True]))
    def pause_or_resume(self, queue: str, paused: bool) -> None:
        def expected() -> bool:
            before, self.model.queues[queue].paused = self.model.queues[queue].paused, paused
            return before != paused

        row = Queue.objects.get(pk=queue)
        self.both(row.pause if paused else row.resume, expected)

    @rule(queue=queues)
    def look(self, queue: str) -> None:
        self.both(
            lambda: [m.pk for m in DeadLetter.objects.peek(queue, limit=99)],
            lambda: self.model.dead_ids(queue),
        )
        counts = next(each.counts for each in Queue.objects.stats() if each.queue == queue)
        assert Counter(counts) == self.model.counts(queue)

    # Time

    @rule(by=lengths)
    def advance(self, by: int) -> None:
        self.clock.ms += by

    @rule()
    def step_back_an_hour(self) -> None:
        self.clock.ms -= 3_600_000

    @rule(place=places, off=st.sampled_from([0, 0, -1]))
    def advance_to_a_deadline(self, place: int, off: int) -> None:
        """To the very millisecond at which something ends, or to the one before."""
        times = [at for at in self.model.deadlines() if at > self.clock.ms]
        if times:
            self.clock.ms = times[place % len(times)] + off

    @rule()
    def reap(self) -> None:
        self.both(lambda: run_all("default") and None, self.model.reap)

    @rule()
    def lease_out_and_reap(self) -> None:
        self.clock.ms += 60_000
        self.reap()

    # Transactions of the caller

    @precondition(lambda self: len(self.world.open) < 2)
    @rule()
    def begin(self) -> None:
        self.world.begin()

    @precondition(lambda self: self.world.open)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        self.world.end(commit=commit)

    def end_all(self) -> None:
        while self.world.open:
            self.world.end(commit=False)


@pytest.mark.django_db(transaction=True)
def test_the_queue_does_what_the_model_does(clock, caplog):
    caplog.set_level("CRITICAL", logger="django_mqlite")  # dead letters are daily bread here
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous=OFF")  # power loss is no part of the model
    try:
        run_state_machine_as_test(lambda: QueueMachine(clock), settings=settings())
    finally:
        connection.close()
