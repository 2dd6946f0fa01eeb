"""The queue behaves like the reference model in random sequences of verbs."""

import os
from collections import Counter

import pytest
from django.db import connection
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from django_mqlite.models import DeadLetter, Queue
from django_mqlite.store.sqlite import settle
from tests.model.dead_letters import DeadLetters
from tests.model.reference import MAX_UNCOUNTED
from tests.model.strategies import lengths, places, queues

EXAMPLES = int(os.environ.get("MQLITE_TEST_MODEL_EXAMPLES", "200"))
"""Of 50 steps each, unless the profile asks for more: as many as fit into a minute."""


def at_least(examples: int) -> settings:
    return settings(max_examples=max(examples, settings().max_examples))


class QueueMachine(DeadLetters):
    """Every verb, the passing of time, and transactions of the caller."""

    @rule(queue=queues)
    def look(self, queue: str) -> None:
        self.both(
            lambda: [m.pk for m in DeadLetter.objects.peek(queue, limit=99)],
            lambda: self.model.dead_ids(queue),
        )
        counts = next(stats.counts for stats in Queue.objects.stats() if stats.queue == queue)
        assert Counter(counts) == self.model.counts(queue)

    # Time

    @rule(by=lengths)
    def advance(self, by: int) -> None:
        self.clock.ms += by

    @rule(place=places, off=st.sampled_from([0, 0, -1]))
    def advance_to_a_deadline(self, place: int, off: int) -> None:
        """Advance to a time at which something ends, or to the millisecond before."""
        times = [at for at in self.model.deadlines() if at > self.clock.ms]
        if times:
            self.clock.ms = times[place % len(times)] + off

    # Transactions of the caller

    @precondition(lambda self: len(self.world.open) < 2)
    @rule()
    def begin(self) -> None:
        self.world.begin()

    @precondition(lambda self: self.world.open)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        self.world.end(commit=commit)


@pytest.mark.django_db(transaction=True)
def test_queue_behaves_like_the_model(clock, caplog, monkeypatch):
    monkeypatch.setattr(settle, "MAX_UNCOUNTED_RETRIES", MAX_UNCOUNTED)
    caplog.set_level("CRITICAL", logger="django_mqlite")  # every dead letter is logged
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous=OFF")  # power loss is no part of the model
    try:
        run_state_machine_as_test(lambda: QueueMachine(clock), settings=at_least(EXAMPLES))
    finally:
        connection.close()
