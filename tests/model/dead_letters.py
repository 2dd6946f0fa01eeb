"""Rules 7, 8.2 and 15: cancel, discard, activate, redrive and purge."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import fingerprint
from tests.model.book import UNFINISHED
from tests.model.settling import Settling
from tests.model.strategies import (
    MODES,
    any_queue,
    places,
    queues,
    requests,
    selections,
    some_places,
)
from tests.model.values import New
from tests.model.world import seconds


class DeadLetters(Settling):
    """Cancel, run now, release, discard, activate, redrive and purge."""

    @rule(queue=queues, place=places)
    def cancel(self, queue: str, place: int) -> None:
        self.provide(queue, "scheduled")
        (id,) = self.world.ids([place], "scheduled")
        self.both(lambda: Message.objects.cancel(id), lambda: self.model.cancel(id))

    @rule(queue=queues, place=places)
    def run_now(self, queue: str, place: int) -> None:
        self.provide(queue, "scheduled")
        (id,) = self.world.ids([place], "scheduled")
        self.both(lambda: Message.objects.run_now(id), lambda: self.model.run_now(id))

    @rule(queue=queues, place=places)
    def release(self, queue: str, place: int) -> None:
        """Release a lease by its fingerprint; it may have expired or been replaced."""
        self.provide(queue, "locked")
        if self.world.held:
            message = self.world.pick(place)
            token = message.claimed_token or ""
            self.both(
                lambda: Message.objects.release(message.pk, seen=fingerprint(token)),
                lambda: self.model.release(message.pk, token),
            )

    @rule(queue=queues, state=st.sampled_from(sorted(UNFINISHED)), place=places)
    def discard(self, queue: str, state: str, place: int) -> None:
        self.provide(queue, state)
        (id,) = self.world.ids([place], state)
        self.both(lambda: Message.objects.discard(id), lambda: self.model.discard(id))

    @rule(queue=queues, state=st.sampled_from(sorted(UNFINISHED)), at=some_places)
    def discard_many(self, queue: str, state: str, at: Sequence[int]) -> None:
        self.provide(queue, state)
        ids = self.world.ids(at, state)
        self.both(
            lambda: Message.objects.discard_many(ids),
            lambda: sum([self.model.discard(id) for id in dict.fromkeys(ids)]),
        )

    @rule(queue=any_queue, state=st.sampled_from([None, *sorted(UNFINISHED)]))
    def discard_queue(self, queue: str, state: str | None) -> None:
        self.both(
            lambda: Message.objects.discard_queue(queue, state=state),
            lambda: self.model.discard_queue(queue, state),
        )

    @rule(queue=queues, place=places)
    def activate(self, queue: str, place: int) -> None:
        self.provide(queue, "deferred")
        (id,) = self.world.ids([place], "deferred")
        self.both(lambda: Message.objects.activate(id), lambda: self.model.activate(id))

    @rule(queue=any_queue)
    def activate_queue(self, queue: str) -> None:
        self.both(
            lambda: Message.objects.activate_queue(queue),
            lambda: self.model.activate_queue(queue),
        )

    @rule(queue=queues, at=some_places, into=st.sampled_from([None, None, *MODES, "nowhere"]))
    def redrive(self, queue: str, at: Sequence[int], into: str | None) -> None:
        self.provide(queue, "dead_lettered")
        ids = self.world.ids(at, "dead_lettered")
        self.both(
            lambda: DeadLetter.objects.redrive(ids, into=into),
            lambda: self.redriven(self.model.redrive(ids, into=into)),
        )

    @rule(queue=st.sampled_from(["groups", "strict"]), head=st.one_of(st.none(), requests))
    def redrive_into_a_busy_line(self, queue: str, head: tuple | None) -> None:
        """Redrive the first message of a line while a later one is its head."""
        self.enqueue_a_line(queue, 3)
        for request in (("reject", "R", ""), head):
            self.claim(queue, 1, None, None)
            if request and self.world.live(queue):
                self.world.settle(self.world.live(queue)[-1], request)
        self.redrive(queue, [0, 1], None)

    @rule(into=st.sampled_from([*MODES]))
    def redrive_an_urgent_one(self, into: str) -> None:
        """Redrive a message with a priority, which a strict queue drops and group_fifo refuses."""
        self.enqueue("loose", New(priority=5))
        self.claim("loose", 1, None, None)
        if self.world.live("loose"):
            message = self.world.live("loose")[-1]
            self.world.settle(message, ("reject", "R", ""))
            self.both(
                lambda: DeadLetter.objects.redrive([message.pk], into=into),
                lambda: self.redriven(self.model.redrive([message.pk], into=into)),
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
        limit, age, rate, back = selection
        if back:
            self.step_back_an_hour()

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
            raise ValueError  # 0 is not a bound
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
        limit, age, everything, back = selection
        if back:
            self.step_back_an_hour()

        def expected() -> int:
            if limit is None and age is None and not everything:
                raise ValueError
            return self.model.purge(self.dead_ids(queue, limit, age))

        self.both(
            lambda: DeadLetter.objects.purge_queue(
                queue, limit=limit, older_than=seconds(age), everything=bool(everything)
            ),
            expected,
        )

    @rule(queue=queues, place=places, state=st.sampled_from(["locked", "deferred", "scheduled"]))
    def delete(self, queue: str, place: int, state: str) -> None:
        """Another program deletes a message, whatever its state."""
        self.provide(queue, state)
        (id,) = self.world.ids([place], state)

        def expected() -> int:
            record = self.model.messages.get(id)
            if record is not None:
                self.model.delete(record, "deleted")
            return int(record is not None)

        self.both(lambda: Message.objects.filter(pk=id).delete()[0], expected)
