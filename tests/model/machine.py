"""The base of the state machine: queues with random options in the file and in the model."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from django_mqlite.models import Queue, Subscription
from django_mqlite.testing.fake_clock import START_MS, FakeClock
from django_mqlite.worker.reaper import run_all
from tests.model.reference import Reference
from tests.model.strategies import MODES, SUBSCRIPTIONS, TOPICS, options
from tests.model.values import Options
from tests.model.world import World, empty_tables

WANTS = {
    "news-all": lambda new: True,
    "news-red": lambda new: new.subject == "red",
    "odd-broken": lambda new: False,  # no message has properties: a filter that fails is false
}
IN_SECONDS = {"lock_duration", "backoff_base", "backoff_max", "default_ttl", "dedup_window",
              "retain_completed", "dlq_max_age"}  # fmt: skip
OPTIONAL = {"dlq_max_age", "dlq_max_count", "dlq_max_bytes", "max_in_flight", "rate"}


def rate_option(rate: tuple[int, int] | None) -> tuple[int, float] | None:
    """Return the rate as a queue takes it, with its period in seconds."""
    return None if rate is None else (rate[0], rate[1] / 1000)


def queue_options(options: Options) -> dict[str, Any]:
    """Return the options as create_queue() takes them."""
    values = asdict(options)
    del values["paused"]
    values["rate"] = rate_option(options.rate)
    return {
        name: value / 1000 if name in IN_SECONDS else value
        for name, value in values.items()
        if value or name not in OPTIONAL
    }


class Machine(RuleBasedStateMachine):
    """Starts each example with empty tables, compares after each step, and cleans up."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        empty_tables()
        clock.ms = START_MS
        self.clock = clock
        self.steps = 0
        self.world = World(clock, Reference(queues={}))

    @property
    def model(self) -> Reference:
        return self.world.model

    def both(self, real: Any, expected: Any) -> Any:
        return self.world.both(real, expected)

    @initialize(drawn=st.tuples(*[options] * len([*MODES, *SUBSCRIPTIONS])))
    def create(self, drawn: Sequence[Options]) -> None:
        own, subscribed = drawn[: len(MODES)], drawn[len(MODES) :]
        for (name, mode), drawn_options in zip(MODES.items(), own, strict=True):
            self.model.queues[name] = replace(drawn_options, ordering_mode=mode)
            Queue.objects.create_queue(name, **queue_options(self.model.queues[name]))
        self.model.queues |= dict(zip(SUBSCRIPTIONS, subscribed, strict=True))
        for topic, filters in TOPICS.items():
            self.model.topics[topic] = {name: WANTS[name] for name in filters}
            for name, filter in filters.items():
                arguments = queue_options(self.model.queues[name])
                Subscription.objects.subscribe(topic, name, filter=filter, **arguments)

    @rule()
    def reap(self) -> None:
        self.both(lambda: run_all("default") and None, self.model.reap)

    @rule()
    def lease_out_and_reap(self) -> None:
        self.clock.ms += 60_000
        self.reap()

    @rule()
    def step_back_an_hour(self) -> None:
        self.clock.ms -= 3_600_000

    def teardown(self) -> None:
        self.end_all()

    @invariant()
    def queue_and_model_agree(self) -> None:
        self.world.compare()
        self.world.check_invariants()
        self.steps += 1
        if self.steps % 3 == 0:  # it costs more than a step
            self.world.compare_claimable()

    def end_all(self) -> None:
        while self.world.open:
            self.world.end(commit=False)
