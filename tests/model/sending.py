"""Rules 1, 5 and 9: enqueue and publish."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from django_mqlite import Draft
from django_mqlite.models import Message
from tests.model.machine import Machine
from tests.model.strategies import any_queue, bodies, earlies, limits, news
from tests.model.values import New
from tests.model.world import options_of, stored


class Sending(Machine):
    """Enqueue and publish."""

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
        """Enqueue messages of one line that no queue refuses."""
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

    @precondition(lambda self: self.model.seen)
    @rule(early=earlies, bodies=st.lists(bodies, min_size=2, max_size=3))
    def enqueue_when_the_window_ends(self, early: int, bodies: Sequence[bytes]) -> None:
        """Enqueue a known key again, with the same body and with others."""
        (queue, kind, key), (_, _, forgotten_at) = list(self.model.seen.items())[-1]
        self.clock.ms = max(self.clock.ms, forgotten_at - early)
        for body in bodies:
            message_id = key if kind == "id" else None
            self.enqueue(queue, New(group="a", body=body, message_id=message_id))
