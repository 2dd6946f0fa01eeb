"""17 Limits: at most n leases at once, and at most n deliveries in a period."""

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from django_mqlite import QueueNotFound, enqueue
from django_mqlite.limits import Rate
from django_mqlite.models import Message, Queue
from django_mqlite.testing import drain
from django_mqlite.types import Abandonment, Completion
from django_mqlite.verbs import sweeps
from django_mqlite.verbs.settle import Settlement
from tests.support.verbs import claim_ids, claim_one, deferred, reap, state_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def two_at_once(clock, make_queue):
    """A queue with two leases at most, and five messages."""
    queue = make_queue("jobs", max_in_flight=2)
    Message.objects.enqueue_many("jobs", range(5))
    return queue


@pytest.fixture
def three_a_minute(clock, make_queue):
    """A queue with three deliveries a minute, one each 20 s, and twenty messages."""
    queue = make_queue("jobs", rate="3/min")
    Message.objects.enqueue_many("jobs", range(20))
    return queue


def tokens(name="jobs"):
    return limits(name).bucket.tokens


def limits(name="jobs"):
    return next(stats.limits for stats in Queue.objects.stats() if stats.queue == name)


# Options


@pytest.mark.rule("17.1")
def test_limits_are_options_of_a_queue(make_queue):
    queue = make_queue("jobs", max_in_flight=3, rate="100/min")
    assert (queue.max_in_flight, queue.rate) == (3, Rate(count=100, period_ms=60_000))

    queue = Queue.objects.configure("jobs", rate=None)
    assert (queue.max_in_flight, queue.rate) == (3, None)

    queue = Queue.objects.configure("jobs", max_in_flight=None)
    assert (queue.max_in_flight, queue.rate) == (0, None)


@pytest.mark.rule("17.1")
@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("rate", "100", 'such as "100/min"'),
        ("rate", 60, 'such as "100/min"'),
        ("rate", "0/s", "1 to 1,000,000 deliveries"),
        ("max_in_flight", 0, "None is no limit"),
        ("max_in_flight", "3", "an integer of at least 1"),
    ],
)
def test_invalid_limit_is_refused_with_what_is_valid(make_queue, option, value, error):
    with pytest.raises(ImproperlyConfigured, match=error):
        make_queue("jobs", **{option: value})
    assert not Queue.objects.exists()


# max_in_flight


@pytest.mark.rule("17.2")
def test_no_claim_exceeds_the_leases(two_at_once):
    assert len(claim_ids("jobs", limit=1)) == 1
    assert len(claim_ids("jobs", limit=5)) == 1
    assert claim_ids("jobs") == []
    assert Message.objects.claimable() == set()


@pytest.mark.rule("17.2")
def test_deferred_messages_are_claimed_within_the_leases_in_the_given_order(clock, make_queue):
    make_queue("jobs")
    ids = [deferred("jobs").pk for _ in range(4)]
    Queue.objects.configure("jobs", max_in_flight=2)

    claimed = Message.objects.claim_deferred("jobs", ids[::-1])

    assert {message.pk for message in claimed} == set(ids[2:])
    assert Message.objects.claim_deferred("jobs", ids) == []


@pytest.mark.rule("17.2")
def test_worker_settles_before_it_claims_again(two_at_once):
    first, second = Message.objects.claim("jobs", limit=2)

    _, messages = Message.objects.settle_and_claim(
        [Settlement(message=first, outcome=Completion())], ["jobs"], limit=5, worker="w"
    )

    assert len(messages) == 1
    assert second.lease is not None


@pytest.mark.rule("17.2")
@pytest.mark.parametrize(
    "end",
    [
        lambda message: message.complete(),
        lambda message: message.abandon(delay=60),
        lambda message: message.reject("R"),
        lambda message: message.defer(),
        lambda message: Message.objects.discard(message.pk),
        lambda message: Message.objects.release(message.pk, seen=message.lease_fingerprint),
        lambda message: sweeps.interrupt("default", [message.lease], reason="stopped"),
    ],
    ids=["complete", "abandon", "reject", "defer", "discard", "release", "interrupt"],
)
def test_every_end_of_a_lease_makes_room_for_one(two_at_once, end):
    message, _ = Message.objects.claim("jobs", limit=2)

    end(message)

    assert len(claim_ids("jobs")) == 1


@pytest.mark.rule("17.2")
def test_expired_lease_does_not_count_even_before_the_reaper(two_at_once, clock):
    Message.objects.claim("jobs", limit=2, lock_duration=10)
    clock.advance(9.999)
    assert claim_ids("jobs") == []

    clock.advance(0.001)

    assert len(claim_ids("jobs")) == 2


@pytest.mark.rule("17.2")
def test_renewed_lease_counts(two_at_once, clock):
    messages = Message.objects.claim("jobs", limit=2, lock_duration=10)
    clock.advance(9)

    Message.objects.renew_many(messages, 10)
    clock.advance(9)

    assert claim_ids("jobs") == []


@pytest.mark.rule("17.2")
def test_claim_and_delete_takes_nothing_while_all_leases_are_held(two_at_once):
    held = claim_one("jobs")
    assert len(Message.objects.claim_and_delete("jobs", limit=5)) == 1
    claim_one("jobs")

    assert Message.objects.claim_and_delete("jobs", limit=5) == []

    held.complete()
    assert len(Message.objects.claim_and_delete("jobs", limit=5)) == 1


@pytest.mark.rule("17.2")
def test_claim_and_delete_of_groups_takes_no_more_than_there_are_leases(clock, make_queue):
    make_queue("jobs", ordering_mode="group_fifo", max_in_flight=2)
    for _ in range(5):
        enqueue("jobs", None, group_id="g")

    assert len(Message.objects.claim_and_delete("jobs", limit=5)) == 2


@pytest.mark.rule("17.2")
def test_limit_is_that_of_its_queue_only(two_at_once, make_queue):
    make_queue("others", max_in_flight=1)
    Message.objects.enqueue_many("others", range(3))

    assert (len(claim_ids("jobs")), len(claim_ids("others"))) == (2, 1)


# rate


@pytest.mark.rule("17.3")
def test_bucket_holds_its_count_and_refills_evenly(three_a_minute, clock):
    assert len(claim_ids("jobs", limit=10)) == 3
    for _ in range(3):
        clock.advance(19.999)
        assert claim_ids("jobs") == []
        clock.advance(0.001)
        assert len(claim_ids("jobs")) == 1

    clock.advance(3600)
    assert len(claim_ids("jobs")) == 3


@pytest.mark.rule("17.3")
@pytest.mark.parametrize("rate", ["7/s", "100/min", "1/30s"])
def test_no_window_has_more_deliveries_than_the_rate(clock, make_queue, rate):
    queue = make_queue("jobs", rate=rate)
    Message.objects.enqueue_many("jobs", range(200))
    times = []
    for step in [0, 1, 0, 142, 1, 57, 600, 3, 999, 5_000, 143, 143, 30_000, 1] * 5:
        clock.advance(step / 1_000)
        times += [clock.now_ms()] * len(claim_ids("jobs", limit=9))

    count, period_ms = queue.rate.count, queue.rate.period_ms
    for first, start in enumerate(times):
        for last, end in enumerate(times[first:], start=first):
            assert (last - first + 1 - count) * period_ms <= count * (end - start)


@pytest.mark.rule("17.3")
def test_every_way_to_claim_takes_tokens(three_a_minute):
    claim_one("jobs").defer()
    (again,) = Message.objects.claim_deferred("jobs", Message.objects.values_list("pk", flat=True))
    _, messages = Message.objects.settle_and_claim([], ["jobs"], limit=1, worker="w")

    assert (again.delivery_count, len(messages), tokens()) == (2, 1, 0)
    assert claim_ids("jobs") == Message.objects.claim_and_delete("jobs") == []


@pytest.mark.rule("17.3")
def test_rolled_back_claim_takes_no_token(three_a_minute):
    with transaction.atomic():
        assert len(Message.objects.claim_and_delete("jobs", limit=9)) == 3
        transaction.set_rollback(True)

    assert tokens() == 3


@pytest.mark.rule("17.3")
def test_claim_of_nothing_takes_no_token(clock, make_queue):
    make_queue("jobs", rate="3/min")

    assert claim_ids("jobs") == []

    assert tokens() == 3


@pytest.mark.rule("17.3")
def test_both_limits_apply(clock, make_queue):
    make_queue("jobs", rate="5/min", max_in_flight=3)
    Message.objects.enqueue_many("jobs", range(20))

    for message in Message.objects.claim("jobs", limit=9):
        message.complete()

    assert len(claim_ids("jobs", limit=9)) == 2


# What takes a token


@pytest.mark.rule("17.4")
@pytest.mark.parametrize(
    "give_back",
    [
        lambda message: message.abandon(delay=0),
        lambda message: Message.objects.release(message.pk, seen=message.lease_fingerprint),
        lambda message: sweeps.interrupt("default", [message.lease], reason="stopped"),
        lambda message: Message.objects.settle(message, Abandonment(delay_ms=1, counts=False)),
        lambda message: message.defer(),
    ],
    ids=["abandon", "release", "interrupt", "uncounted retry", "defer"],
)
def test_token_is_not_given_back(three_a_minute, give_back):
    message = claim_one("jobs")

    give_back(message)

    assert tokens() == 2


@pytest.mark.rule("17.4")
def test_expired_delivery_takes_another_token(three_a_minute, clock):
    claim_one("jobs", lock_duration=1)
    clock.advance(1)
    reap()

    assert claim_one("jobs").delivery_count == 2
    assert tokens() == 1


@pytest.mark.rule("17.4")
def test_repeated_attempt_takes_no_token(three_a_minute):
    first = claim_ids("jobs", limit=1)
    once = Message.objects.claim("jobs", limit=2, attempt_id="a")
    assert (len(first), len(once), tokens()) == (1, 2, 0)

    assert Message.objects.claim("jobs", limit=2, attempt_id="a") == once
    assert tokens() == 0


# Changes


@pytest.mark.rule("17.5")
def test_lower_limit_ends_no_lease_and_waits_for_the_excess(two_at_once):
    held = Message.objects.claim("jobs", limit=2)

    Queue.objects.configure("jobs", max_in_flight=1)

    held[0].complete()
    assert claim_ids("jobs") == []
    held[1].complete()
    assert len(claim_ids("jobs")) == 1


@pytest.mark.rule("17.5")
def test_first_limit_counts_the_leases_that_are_held_already(clock, make_queue):
    make_queue("jobs")
    Message.objects.enqueue_many("jobs", range(5))
    Message.objects.claim("jobs", limit=2)

    Queue.objects.configure("jobs", max_in_flight=3)

    assert len(claim_ids("jobs")) == 1


@pytest.mark.rule("17.5")
@pytest.mark.parametrize(("rate", "left"), [("100/s", 1), ("1/h", 1), ("3/h", 1), (None, None)])
def test_changed_rate_keeps_the_tokens(three_a_minute, rate, left):
    Message.objects.claim("jobs", limit=2)

    Queue.objects.configure("jobs", rate=rate)

    bucket = limits().bucket
    assert (bucket and bucket.tokens) == left


@pytest.mark.rule("17.5")
def test_lower_rate_keeps_at_most_its_count(three_a_minute):
    Queue.objects.configure("jobs", rate="2/min")

    assert len(claim_ids("jobs", limit=9)) == 2


@pytest.mark.rule("17.5")
def test_first_rate_starts_full_and_so_does_one_after_none(three_a_minute):
    Message.objects.claim("jobs", limit=3)
    Queue.objects.configure("jobs", rate=None)

    Queue.objects.configure("jobs", rate="3/min")

    assert tokens() == 3


@pytest.mark.rule("17.5")
def test_unchanged_declaration_does_not_refill_the_bucket(three_a_minute, settings):
    Message.objects.claim("jobs", limit=3)
    settings.MQLITE = {"QUEUES": {"jobs": {"rate": "3/min"}}}

    assert Queue.objects.sync() == []
    Queue.objects.configure("jobs", lock_duration=60)

    assert tokens() == 0


# The clock


@pytest.mark.rule("17.6")
def test_clock_that_steps_back_adds_no_tokens(three_a_minute, clock):
    Message.objects.claim("jobs", limit=3)

    clock.advance(-7200)

    assert claim_ids("jobs") == []
    clock.advance(19.999)
    assert claim_ids("jobs") == []
    clock.advance(0.001)
    assert len(claim_ids("jobs")) == 1


@pytest.mark.rule("17.6")
def test_clock_that_steps_back_keeps_the_tokens(three_a_minute, clock):
    claim_one("jobs")

    clock.advance(-7200)

    assert len(claim_ids("jobs")) == 2


@pytest.mark.rule("17.6")
def test_clock_that_steps_ahead_fills_the_bucket_once(three_a_minute, clock):
    Message.objects.claim("jobs", limit=3)

    clock.advance(timedelta(days=365))

    assert len(claim_ids("jobs")) == 3


# What is shown


@pytest.mark.rule("17.9")
def test_explanation_names_the_leases(two_at_once):
    Message.objects.claim("jobs", limit=2)
    last = Message.objects.order_by("pk").last()

    why = last.explain()

    assert why.code == "max_in_flight"
    assert why.text == (
        "waits for the limit of queue jobs: 2 of 2 in flight; 2 other messages come first; "
        "no live worker serves the queue"
    )
    assert (why.facts["in_flight"], why.facts["max_in_flight"]) == (2, 2)
    assert (why.facts["rate"], why.facts["ahead"]) == (None, 2)


@pytest.mark.rule("17.9")
def test_explanation_names_the_next_token(three_a_minute, clock):
    message = enqueue("jobs", None, priority=9)
    Queue.objects.configure("jobs", max_in_flight=4)
    Message.objects.claim("jobs", limit=3)
    message.refresh_from_db()
    assert state_of(message) == "locked"
    message = Message.objects.filter(state="active").earliest("pk")
    clock.advance(19.6)

    why = message.explain()

    assert why.code == "rate"
    assert why.text == (
        "waits for the limit of queue jobs: rate 3/min: next token in 0.4 s; "
        "no live worker serves the queue"
    )
    assert why.facts["next_token_at"] == (clock.now + timedelta(seconds=0.4)).isoformat()
    assert (why.facts["rate"], why.facts["in_flight"]) == ("3/min", 3)


@pytest.mark.rule("17.9")
def test_statistics_have_the_limits_and_their_use(clock, make_queue):
    make_queue("free")
    make_queue("jobs", max_in_flight=3, rate="3/min")
    Message.objects.enqueue_many("jobs", range(5))
    Message.objects.claim("jobs", limit=2)

    assert (limits().in_flight, limits().max_in_flight) == (2, 3)
    assert (str(limits().bucket.rate), limits().tokens, limits().room) == ("3/min", 1, 1)
    assert not limits("free").is_set
    assert Queue.objects.limits("jobs") == limits()
    with pytest.raises(QueueNotFound, match="Did you mean 'jobs'"):
        Queue.objects.limits("job")
    (overview,) = [o for o in Queue.objects.overview() if o.stats.queue == "jobs"]
    assert overview.stats.limits == limits()


# Tests of projects


@pytest.fixture
def handled(monkeypatch):
    """The times at which messages of `jobs` were handled."""
    from django_mqlite import handlers, timing  # noqa: PLC0415 - beside what is patched

    monkeypatch.setattr(handlers, "_handlers", {})
    times = []
    handlers.handler("jobs")(lambda message: times.append(timing.now_ms()))
    return times


@pytest.mark.rule("17.10")
def test_drain_moves_the_clock_to_each_token(three_a_minute, clock, handled):
    start = clock.now_ms()

    assert len(drain()) == 20

    assert [at - start for at in handled] == [max(0, n - 2) * 20_000 for n in range(20)]


@pytest.mark.rule("17.10")
def test_drain_without_retries_leaves_what_is_above_the_rate(three_a_minute, clock, handled):
    assert len(drain(retries=False)) == 3
    clock.advance(40)
    assert len(drain(retries=False)) == 2


@pytest.mark.rule("17.10")
def test_drain_leaves_messages_behind_leases_of_the_caller(two_at_once, clock, handled):
    held = Message.objects.claim("jobs", limit=2)
    start = clock.now_ms()

    assert drain() == []
    assert clock.now_ms() == start

    held[0].complete()
    assert len(drain()) == 3


@pytest.mark.rule("17.10")
def test_drain_refills_the_bucket_after_the_clock_was_set_back(three_a_minute, clock, handled):
    Message.objects.claim("jobs", limit=3)
    clock.advance(-7200)
    start = clock.now_ms()

    drain()

    assert handled[0] - start == 20_000
