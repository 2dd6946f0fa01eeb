"""Lines: one head each, and a claim sees nothing but heads."""

from collections import defaultdict

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from django_mqlite import LockLost, enqueue
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.testing import FakeClock
from django_mqlite.verbs import sweeps
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    dead_letter,
    enqueue_and_claim,
    reap,
)

pytestmark = pytest.mark.django_db

UNFINISHED = {"active", "locked", "deferred", "scheduled"}


def grouped(*groups):
    """The ids of new messages of these groups."""
    return [enqueue("groups", None, group_id=group).pk for group in groups]


def complete_all(messages):
    for message in messages:
        message.complete()


def defer(message):
    """There is no verb for it yet; the triggers know the state already."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE mqlite_messages SET state = 'deferred', lock_token = NULL, locked_until = 0"
            " WHERE id = %s",
            [message.pk],
        )


def heads():
    """The unblocked unfinished messages by (queue, line), after checking what always holds."""
    found, lines = defaultdict(list), set()
    for message in Message.objects.order_by("pk"):
        if message.line is None or message.state not in UNFINISHED:
            assert not message.blocked, f"{message} is blocked outside a line"
            continue
        lines.add((message.queue, message.line))
        if not message.blocked:
            found[message.queue, message.line].append(message)
        assert message.state != "locked" or not message.blocked, f"{message} is locked, not head"
    assert set(found) == lines, "a line with unfinished messages has no head"
    assert {len(messages) for messages in found.values()} <= {1}, "two heads in one line"
    return {line: messages[0].pk for line, messages in found.items()}


def test_a_group_gives_one_message_at_a_time_in_order(clock, group_queue):
    first, second, third = grouped("a", "a", "a")

    given = []
    while batch := Message.objects.claim("groups", limit=10):
        given.append([message.pk for message in batch])
        assert Message.objects.claim("groups", limit=10) == []
        complete_all(batch)

    assert given == [[first], [second], [third]]


def test_groups_go_in_parallel(clock, group_queue):
    a1, a2, b1, b2, c1 = grouped("a", "a", "b", "b", "c")

    assert claim_ids("groups") == [a1, b1, c1]
    assert claim_ids("groups") == []
    assert {a2, b2}.isdisjoint(heads().values())


def test_ungrouped_messages_wait_for_nobody(clock, queue):
    grouped_ids = [enqueue("jobs", None, group_id="g").pk for _ in range(2)]
    loose = [enqueue("jobs", None).pk for _ in range(3)]

    assert claim_ids("jobs") == [grouped_ids[0], *loose]


def test_the_same_group_in_two_queues_is_two_lines(clock, queue, group_queue):
    a = enqueue("jobs", None, group_id="g").pk
    b = enqueue("groups", None, group_id="g").pk

    assert (claim_ids("jobs"), claim_ids("groups")) == ([a], [b])


@pytest.mark.parametrize("pair", [("g", "G"), ("g", "g "), ("é", "e\u0301"), ("1", "01")])
def test_groups_are_the_same_only_if_their_names_are(clock, group_queue, pair):
    assert claim_ids("groups") == []
    assert len(grouped(*pair)) == len(claim_ids("groups"))


def test_a_head_that_backs_off_keeps_its_place(clock, group_queue):
    first, second, third = grouped("a", "a", "a")
    given = []

    message = claim_one("groups")
    given.append(message.pk)
    message.abandon(delay=10)
    assert claim_ids("groups") == []
    clock.advance(10)
    activate()
    while batch := Message.objects.claim("groups", limit=10):
        given += [message.pk for message in batch]
        complete_all(batch)

    assert given == [first, first, second, third]


def test_an_expired_lease_blocks_until_it_is_released_and_then_goes_first(clock, group_queue):
    first, _ = grouped("a", "a")
    claim_one("groups")

    clock.advance(3_600)
    assert claim_ids("groups") == []

    reap()
    assert claim_ids("groups") == [first]


def test_a_scheduled_head_holds_the_later_ones_back(clock, group_queue):
    first = enqueue("groups", None, group_id="a", delay=10).pk
    (second,) = grouped("a")

    assert claim_ids("groups") == []

    clock.advance(10)
    activate()
    assert claim_ids("groups") == [first]
    assert heads() == {("groups", "a"): first}
    assert second != first


def test_a_scheduled_message_that_comes_due_behind_the_head_stays_behind(clock, group_queue):
    (first,) = grouped("a")
    second = enqueue("groups", None, group_id="a", delay=1).pk
    clock.advance(1)
    activate()

    head = claim_one("groups")
    assert head.pk == first
    assert claim_ids("groups") == []
    head.complete()
    assert claim_ids("groups") == [second]


ENDINGS = {
    "completed": lambda message, clock: message.complete(),
    "rejected": lambda message, clock: message.reject("R"),
    "abandoned at its bound": lambda message, clock: message.abandon(delay=60),
    "released at its bound": lambda message, clock: (clock.advance(30), reap()),
    "deleted": lambda message, clock: Message.objects.filter(pk=message.pk).delete(),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("retain", [0, 60], ids=["deleting", "retaining"])
def test_a_head_that_is_gone_passes_its_place_on(clock, make_queue, ending, retain):
    make_queue("groups", ordering_mode="group_fifo", max_delivery_count=1, retain_completed=retain)
    first, second, third = grouped("a", "a", "a")

    ENDINGS[ending](claim_one("groups"), clock)

    assert heads() == {("groups", "a"): second}
    assert claim_ids("groups") == [second]
    assert third not in heads().values()
    assert first != second


def test_the_last_of_a_line_leaves_nobody_behind_and_the_line_begins_anew(clock, group_queue):
    grouped("a")
    claim_one("groups").complete()
    assert heads() == {}

    (again,) = grouped("a")

    assert claim_ids("groups") == [again]


def test_a_message_deleted_from_the_middle_changes_nobodys_place(clock, group_queue):
    first, second, third = grouped("a", "a", "a")

    Message.objects.filter(pk=second).delete()

    assert heads() == {("groups", "a"): first}
    claim_one("groups").complete()
    assert claim_ids("groups") == [third]


def test_a_rolled_back_head_was_never_one(clock, group_queue):
    with pytest.raises(RuntimeError), transaction.atomic():
        grouped("a")
        raise RuntimeError

    (first,) = grouped("a")
    assert claim_ids("groups") == [first]


def test_a_purged_dead_letter_leaves_the_line_as_it_is(clock, group_queue):
    dead = dead_letter("groups", group_id="a")
    first, second = grouped("a", "a")

    DeadLetter.objects.purge([dead.pk])

    assert heads() == {("groups", "a"): first}
    assert second not in heads().values()


def test_a_redriven_message_returns_to_its_place_ahead_of_a_waiting_head(clock, group_queue):
    dead = dead_letter("groups", group_id="a")
    first, second = grouped("a", "a")

    DeadLetter.objects.redrive([dead.pk])

    given = []
    while batch := Message.objects.claim("groups", limit=10):
        given += [message.pk for message in batch]
        complete_all(batch)
    assert given == [dead.pk, first, second]


def test_a_redriven_message_returns_ahead_of_a_head_that_backs_off(clock, group_queue):
    dead = dead_letter("groups", group_id="a")
    later = enqueue_and_claim("groups", None, group_id="a")
    later.abandon(delay=60)

    DeadLetter.objects.redrive([dead.pk])

    assert claim_ids("groups") == [dead.pk]
    clock.advance(60)
    assert activate() == 1
    assert claim_ids("groups") == []
    assert heads() == {("groups", "a"): dead.pk}


@pytest.mark.parametrize("set_aside", [False, True], ids=["locked", "deferred"])
def test_a_redriven_message_waits_for_a_later_one_that_is_at_work(clock, group_queue, set_aside):
    dead = dead_letter("groups", group_id="a")
    at_work = enqueue_and_claim("groups", None, group_id="a")
    grouped("a")
    if set_aside:
        defer(at_work)

    DeadLetter.objects.redrive([dead.pk])

    assert claim_ids("groups") == []
    assert heads() == {("groups", "a"): at_work.pk}
    Message.objects.filter(pk=at_work.pk).delete()
    assert claim_ids("groups") == [dead.pk]


def fail(message, clock):
    message.abandon(delay=60)


def give_back_at_once(message, clock):
    message.abandon(delay=0)


def give_back_deferred(message, clock):
    defer(message)
    (again,) = Message.objects.claim_deferred("groups", [message.pk])
    again.abandon(delay=60)


def let_the_lease_run_out(message, clock):
    clock.advance(3600)
    assert len(reap()) == 1


def release_by_hand(message, clock):
    assert Message.objects.release(message.pk, seen=message.lease_fingerprint)


def lose_the_worker(message, clock):
    assert sweeps.release_worker("default", "w", reason="gone", limit=10) == 1


@pytest.mark.parametrize(
    "end_delivery",
    [
        fail,
        give_back_at_once,
        give_back_deferred,
        let_the_lease_run_out,
        release_by_hand,
        lose_the_worker,
    ],
)
def test_failed_delivery_returns_behind_earlier_redriven_messages(clock, group_queue, end_delivery):
    first, second = grouped("a", "a")
    claim_one("groups").reject("R")
    claim_one("groups").reject("R")
    later, last = grouped("a", "a")
    at_work = claim_one("groups", worker="w")
    DeadLetter.objects.redrive([second, first])
    assert claim_ids("groups") == []

    end_delivery(at_work, clock)

    assert heads()["groups", "a"] == first
    clock.advance(60)
    activate()
    given = []
    while batch := Message.objects.claim("groups", limit=10):
        given += [message.pk for message in batch]
        complete_all(batch)
    assert given == [first, second, later, last]


def test_a_redriven_message_returns_behind_an_earlier_head(clock, group_queue):
    first, second = grouped("a", "a")
    claim_one("groups").reject("R")
    claim_one("groups").reject("R")
    DeadLetter.objects.redrive([first])

    DeadLetter.objects.redrive([second])

    assert heads() == {("groups", "a"): first}
    claim_one("groups").complete()
    assert claim_ids("groups") == [second]


def test_a_whole_line_redriven_at_once_has_its_order_back(clock, group_queue):
    ids = grouped("a", "a", "b", "a", "b")
    while batch := Message.objects.claim("groups", limit=10):
        for message in batch:
            message.reject("R")

    DeadLetter.objects.redrive(reversed(ids))

    given = []
    while batch := Message.objects.claim("groups", limit=10):
        given.append([message.pk for message in batch])
        complete_all(batch)
    assert given == [[ids[0], ids[2]], [ids[1], ids[4]], [ids[3]]]


def test_a_strict_queue_has_one_message_in_flight_in_order_of_arrival(clock, strict_queue):
    ids = [enqueue("strict", None, group_id=g).pk for g in ("a", "b", None, "a")]

    given = []
    while batch := Message.objects.claim("strict", limit=10):
        given.append([message.pk for message in batch])
        assert Message.objects.claim("strict", limit=10) == []
        complete_all(batch)

    assert given == [[id] for id in ids]


def test_a_strict_queues_backing_off_head_holds_the_whole_queue(clock, strict_queue):
    first, second = (enqueue("strict", None).pk for _ in range(2))
    claim_one("strict").abandon(delay=5)

    assert claim_ids("strict") == []

    clock.advance(5)
    activate()
    assert claim_ids("strict") == [first]
    assert heads() == {("strict", ""): first}
    assert second != first


def test_deleting_a_queue_takes_its_lines_along(clock, group_queue, strict_queue):
    grouped("a", "a", "b", "b")
    claim_one("groups")
    (kept,) = (enqueue("strict", None).pk,)

    group_queue.delete()

    assert heads() == {("strict", ""): kept}
    assert Message.objects.count() == 1


def test_the_table_itself_refuses_a_second_head(clock, group_queue):
    _, second = grouped("a", "a")

    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute("UPDATE mqlite_messages SET blocked = 0 WHERE id = %s", [second])


@pytest.mark.parametrize(
    "change", ["state = 'dead_lettered'", "state = 'completed'", "line = NULL", "blocked = 2"]
)
def test_the_table_itself_refuses_a_blocked_message_outside_a_line(clock, group_queue, change):
    _, second = grouped("a", "a")

    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(f"UPDATE mqlite_messages SET {change} WHERE id = %s", [second])


# Whatever happens, in whatever order

QUEUES = {"standard": "mixed", "group_fifo": "groups", "strict_fifo": "strict"}
PLACES = st.integers(0, 11)
OPERATIONS = st.one_of(
    st.tuples(
        st.just("enqueue"),
        st.sampled_from(sorted(QUEUES.values())),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([0, 5]),
    ),
    st.tuples(st.just("claim"), st.sampled_from(sorted(QUEUES.values())), st.integers(1, 4)),
    st.tuples(st.sampled_from(["complete", "reject", "defer"]), PLACES),
    st.tuples(st.just("abandon"), PLACES, st.sampled_from([0, 5])),
    st.tuples(st.sampled_from(["redrive", "purge"]), st.sets(PLACES, min_size=1, max_size=4)),
    st.tuples(st.just("delete"), PLACES),
    st.tuples(st.sampled_from(["reap", "activate"]), st.integers(1, 3)),
    st.tuples(st.just("advance"), st.sampled_from([1, 5, 31, -3])),
)


class World:
    """Runs operations on the database and says beforehand who is the head of each line."""

    def __init__(self, clock):
        self.clock = clock
        self.claimed = []
        self.expected = {}
        for mode, name in QUEUES.items():
            Queue.objects.create_queue(name, ordering_mode=mode, max_delivery_count=2)

    def run(self, name, *arguments):
        before = {message.pk: message for message in Message.objects.all()}
        getattr(self, name)(*arguments)
        self.settle_heads(before, {m.pk: m for m in Message.objects.all()})
        assert heads() == self.expected

    def settle_heads(self, before, after):
        """Who leaves makes room for the earliest; who returns goes ahead of a later one at rest."""
        for line, head in list(self.expected.items()):
            if head not in after or after[head].state not in UNFINISHED:
                del self.expected[line]
        for pk, message in sorted(after.items()):
            if message.line is None or message.state not in UNFINISHED:
                continue
            line = (message.queue, message.line)
            head = self.expected.setdefault(line, pk)
            returned = pk in before and before[pk].state == "dead_lettered"
            if returned and pk < head and after[head].state in ("active", "scheduled"):
                self.expected[line] = pk

    def at(self, place, of):
        return of[place % len(of)] if of else None

    def enqueue(self, queue, group, delay):
        if queue != "groups" or group is not None:
            enqueue(queue, None, group_id=group, delay=delay)

    def claim(self, queue, limit):
        claimed = Message.objects.claim(queue, limit=limit)
        for message in claimed:
            assert message.line is None or self.expected[queue, message.line] == message.pk
        self.claimed += claimed

    def settle(self, place, verb):
        message = self.at(place, self.claimed)
        if message is not None:
            live = (
                Message.objects.filter(pk=message.pk, lock_token=message.lock_token).exists()
                and message.locked_until > self.clock.now
            )
            before = list(Message.objects.order_by("pk").values())
            try:
                verb(message)
            except LockLost:
                assert not live
            # The same request may be told again that it was carried out.
            assert live or list(Message.objects.order_by("pk").values()) == before

    def complete(self, place):
        self.settle(place, lambda message: message.complete())

    def reject(self, place):
        self.settle(place, lambda message: message.reject("R"))

    def abandon(self, place, delay):
        self.settle(place, lambda message: message.abandon(delay=delay))

    def defer(self, place):
        message = self.at(place, list(Message.objects.filter(state="locked")))
        if message is not None:
            defer(message)

    def some(self, places):
        ids = list(Message.objects.order_by("pk").values_list("pk", flat=True))
        return {self.at(place, ids) for place in places} - {None}

    def redrive(self, places):
        DeadLetter.objects.redrive(self.some(places))

    def purge(self, places):
        DeadLetter.objects.purge(self.some(places))

    def delete(self, place):
        Message.objects.filter(pk__in=self.some([place])).delete()

    def reap(self, limit):
        reap(limit)

    def activate(self, limit):
        activate(limit)

    def advance(self, seconds):
        self.clock.advance(seconds)


@given(st.lists(OPERATIONS, max_size=40))
@hypothesis_settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_line_has_exactly_one_head_whatever_happens(db, operations):
    with connection.cursor() as cursor, FakeClock() as clock:
        cursor.execute("SAVEPOINT before_the_operations")
        world = World(clock)
        try:
            for operation in operations:
                world.run(*operation)
        finally:
            cursor.execute("ROLLBACK TO before_the_operations")
