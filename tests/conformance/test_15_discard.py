"""15 Unfinished messages are discarded, and deferred ones activated."""

from functools import partial

import pytest
from django.db import transaction

from django_mqlite import LockLost, QueueNotFound, enqueue, handlers, signals
from django_mqlite.models import DeadLetter, Message
from django_mqlite.testing import drain
from tests.support import steps
from tests.support.steps import enqueue_flavour, work
from tests.support.verbs import (
    claim_ids,
    claim_one,
    dead_letter,
    deferred,
    enqueue_and_claim,
    row_of,
    state_of,
)

pytestmark = pytest.mark.django_db

TRANSACTIONAL = pytest.mark.django_db(transaction=True)


def retrying(error=None):
    message = enqueue_and_claim("jobs")
    message.abandon(delay=60, error=error)
    return message


def completed():
    message = enqueue_and_claim("jobs")
    message.complete()
    return message


UNFINISHED = {
    "active": lambda: enqueue("jobs", None),
    "locked": lambda: enqueue_and_claim("jobs"),
    "scheduled": lambda: enqueue("jobs", None, delay=60),
    "retrying": retrying,
    "deferred": lambda: deferred("jobs"),
}
FINISHED = {"completed": completed, "dead-lettered": lambda: dead_letter("jobs")}


# Discard


@pytest.mark.rule("15.1")
@pytest.mark.parametrize("state", UNFINISHED)
def test_discarded_message_is_a_dead_letter_and_can_be_redriven(clock, queue, state):
    message = UNFINISHED[state]()
    deliveries = row_of(message)["delivery_count"]

    assert Message.objects.discard(message.pk) is True

    row = row_of(message)
    assert (row["state"], row["dead_letter_reason"]) == ("dead_lettered", "Discarded")
    assert (row["delivery_count"], row["finished_at"]) == (deliveries, clock.now)
    clock.advance(60)
    assert claim_ids("jobs") == []
    assert DeadLetter.objects.redrive([message.pk]) == 1
    assert claim_ids("jobs") == [message.pk]


@pytest.mark.rule("15.1")
@pytest.mark.parametrize("state", FINISHED)
def test_finished_message_is_not_discarded(clock, make_queue, state):
    make_queue("jobs", retain_completed=60)
    message = FINISHED[state]()
    before = row_of(message)

    assert Message.objects.discard(message.pk) is False
    assert Message.objects.discard(10**9) is False

    assert row_of(message) == before


@pytest.mark.rule("15.1")
def test_discarding_twice_changes_nothing(clock, queue):
    message = enqueue("jobs", None)
    Message.objects.discard(message.pk)
    before = row_of(message)
    clock.advance(1)

    assert Message.objects.discard(message.pk) is False

    assert row_of(message) == before


@pytest.mark.rule("15.2")
def test_discard_fences_the_worker_that_holds_the_lease(clock, queue):
    held = enqueue_and_claim("jobs")

    assert Message.objects.discard(held.pk)

    for settle in (held.complete, held.abandon, held.defer, held.renew):
        with pytest.raises(LockLost):
            settle()
    assert row_of(held)["dead_letter_reason"] == "Discarded"


@pytest.mark.rule("15.2")
def test_discarded_delivery_is_recorded_in_errors(clock, queue):
    enqueue("jobs", None)
    held = claim_one("jobs", worker="host:1:ab")
    clock.advance(5)

    Message.objects.discard(held.pk)

    row = row_of(held)
    (error,) = row["errors"]
    assert error["class"] == "django_mqlite.exceptions.Discarded"
    assert (error["delivery"], error["worker"]) == (1, "host:1:ab")
    assert error["failed_at"] - error["started_at"] == 5_000
    assert row["dead_letter_description"] == "during delivery 1"
    assert (row["lock_token"], row["locked_by"]) == (None, None)


@pytest.mark.rule("15.2")
def test_message_that_waits_has_no_delivery_to_record(clock, queue):
    message = enqueue("jobs", None)

    Message.objects.discard(message.pk)

    row = row_of(message)
    assert (row["errors"], row["dead_letter_description"]) == (None, "while it was active")


@pytest.mark.rule("15.2")
def test_redriven_message_does_not_revive_the_discarded_lease(clock, queue):
    held = enqueue_and_claim("jobs")
    Message.objects.discard(held.pk)
    DeadLetter.objects.redrive([held.pk])
    again = claim_one("jobs")

    with pytest.raises(LockLost):
        held.complete()

    again.complete()


def discard_own():
    """Discard the message that is being handled."""
    assert Message.objects.discard(Message.objects.get(state="locked").pk)


@pytest.mark.rule("15.3")
@pytest.mark.parametrize("flavour", ["plain", "async", "task", "async task"])
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(work, id="worker", marks=TRANSACTIONAL),
        pytest.param(lambda: drain("default"), id="drain", marks=TRANSACTIONAL),
        pytest.param(lambda: drain("default"), id="drain in TestCase"),
    ],
)
def test_outcome_of_a_discarded_delivery_is_ignored(make_queue, monkeypatch, flavour, run):
    make_queue("default", retain_completed=60)
    monkeypatch.setattr(handlers, "_handlers", {})
    monkeypatch.setattr(steps, "steps", discard_own)
    enqueue_flavour(flavour)

    run()

    (row,) = Message.objects.values("state", "dead_letter_reason", "delivery_count")
    assert row == {
        "state": "dead_lettered", "dead_letter_reason": "Discarded", "delivery_count": 1,
    }  # fmt: skip


@pytest.mark.rule("15.4")
@pytest.mark.parametrize("make", [enqueue_and_claim, deferred], ids=["locked", "deferred"])
def test_discarded_head_lets_the_next_message_of_its_line_pass(clock, queue, make):
    head = make("jobs", group_id="g")
    behind = enqueue("jobs", None, group_id="g")
    assert claim_ids("jobs") == []

    Message.objects.discard(head.pk)

    assert claim_ids("jobs") == [behind.pk]


@pytest.mark.rule("15.4")
def test_discarded_message_behind_the_head_leaves_the_head(clock, queue):
    head, middle, last = (enqueue("jobs", None, group_id="g") for _ in range(3))

    Message.objects.discard(middle.pk)

    assert claim_ids("jobs") == [head.pk]
    Message.objects.discard(head.pk)
    assert claim_ids("jobs") == [last.pk]


@pytest.mark.rule("15.4")
@pytest.mark.parametrize("backwards", [False, True])
def test_several_messages_of_a_line_are_discarded_at_once(clock, strict_queue, backwards):
    messages = [enqueue("strict", number) for number in range(4)]
    ids = [message.pk for message in messages[:3]]

    assert Message.objects.discard_many(ids[::-1] if backwards else ids) == 3

    assert claim_ids("strict") == [messages[3].pk]


@pytest.mark.rule("15.5")
def test_discard_many_counts_unfinished_messages(clock, queue):
    dead, message = dead_letter("jobs"), enqueue("jobs", None)

    ids = [message.pk, message.pk, dead.pk, 10**9]

    assert Message.objects.discard_many(ids) == 1
    assert Message.objects.discard_many(ids) == 0
    assert row_of(dead)["dead_letter_reason"] == "Broken"


@pytest.mark.rule("15.5")
@pytest.mark.parametrize("state", ["active", "locked", "scheduled", "deferred", None])
def test_queue_is_discarded_by_state(clock, queue, make_queue, state):
    make_queue("others")
    other = enqueue("others", None)
    by_state = {name: UNFINISHED[name]() for name in ("locked", "deferred", "scheduled", "active")}

    discarded = Message.objects.discard_queue("jobs", state=state)

    expected = set(by_state) if state is None else {state}
    assert discarded == len(expected)
    assert {n for n, m in by_state.items() if state_of(m) == "dead_lettered"} == expected
    assert state_of(other) == "active"


@pytest.mark.rule("15.5")
def test_messages_are_discarded_by_the_class_of_their_last_error(clock, queue, make_queue):
    refused = [retrying(ConnectionRefusedError("no")) for _ in range(3)]
    others = [retrying(ValueError("bad")), enqueue("jobs", None)]
    Message.objects.run_now(refused[0].pk)

    discard = partial(Message.objects.discard_queue, "jobs", error_class="ConnectionRefusedError")
    assert discard(state="active", limit=5) == 1
    assert discard(limit=1) == 1
    assert discard() == 1
    assert discard() == 0

    assert {state_of(message) for message in refused} == {"dead_lettered"}
    assert [state_of(message) for message in others] == ["scheduled", "active"]


@pytest.mark.rule("15.5")
@TRANSACTIONAL
def test_message_that_failed_otherwise_during_the_call_is_not_discarded(clock, queue):
    Message.objects.enqueue_many("jobs", [b""] * 1_001)
    for message in Message.objects.claim("jobs", limit=1_001):
        message.abandon(delay=60, error=ValueError("bad"))
    last = Message.objects.order_by("pk").last()

    def fail_otherwise(count):
        if count == 1_000:
            Message.objects.run_now(last.pk)
            claim_one("jobs").abandon(delay=60, error=KeyError("other"))

    discarded = Message.objects.discard_queue(
        "jobs", error_class="ValueError", progress=fail_otherwise
    )

    assert discarded == 1_000
    assert state_of(last) == "scheduled"


@pytest.mark.rule("15.5")
def test_queue_is_discarded_in_batches_up_to_a_limit(clock, queue):
    Message.objects.enqueue_many("jobs", [b""] * 2_500)
    counts = []

    assert Message.objects.discard_queue("jobs", limit=2_200, progress=counts.append) == 2_200

    assert counts == [1_000, 2_000, 2_200]
    assert Message.objects.filter(state="active").count() == 300


@pytest.mark.rule("15.5")
@TRANSACTIONAL
def test_messages_enqueued_during_the_call_are_not_discarded(clock, queue):
    Message.objects.enqueue_many("jobs", [b""] * 1_001)
    later = []

    def enqueue_another(count):
        later.append(enqueue("jobs", None, priority=5))

    assert Message.objects.discard_queue("jobs", progress=enqueue_another) == 1_001

    assert {state_of(message) for message in later} == {"active"}


@pytest.mark.rule("15.5")
@pytest.mark.parametrize(
    ("verb", "arguments", "options", "error"),
    [
        ("discard", ("1",), {}, TypeError),
        ("discard", (True,), {}, TypeError),
        ("discard_many", ("12",), {}, TypeError),
        ("discard_many", ([1, "2"],), {}, TypeError),
        ("discard_queue", (None,), {}, TypeError),
        ("discard_queue", ("job",), {}, QueueNotFound),
        ("discard_queue", ("jobs",), {"state": "completed"}, ValueError),
        ("discard_queue", ("jobs",), {"state": "dead_lettered"}, ValueError),
        ("discard_queue", ("jobs",), {"state": ["active"]}, ValueError),
        ("discard_queue", ("jobs",), {"limit": 0}, ValueError),
        ("discard_queue", ("jobs",), {"error_class": ""}, ValueError),
        ("discard_queue", ("jobs",), {"error_class": ValueError}, TypeError),
        ("discard_queue", ("job",), {"error_class": "ValueError"}, QueueNotFound),
        ("activate", (None,), {}, TypeError),
        ("activate_many", (5,), {}, TypeError),
        ("activate_queue", ("job",), {}, QueueNotFound),
        ("activate_queue", ("jobs",), {"limit": -1}, ValueError),
    ],
)
def test_invalid_argument_discards_and_activates_nothing(
    clock, queue, verb, arguments, options, error
):
    messages = [deferred("jobs"), enqueue("jobs", None)]

    with pytest.raises(error):
        getattr(Message.objects, verb)(*arguments, **options)

    assert [state_of(message) for message in messages] == ["deferred", "active"]


@pytest.fixture
def deaths():
    """The facts of each message_dead_lettered that was sent."""
    sent = []

    def receive(**facts):
        sent.append((facts["id"], facts["reason"], facts["description"]))

    signals.message_dead_lettered.connect(receive)
    yield sent
    signals.message_dead_lettered.disconnect(receive)


@pytest.mark.rule("15.6")
@TRANSACTIONAL
def test_discard_in_atomic_is_the_callers(clock, queue, deaths):
    held = enqueue_and_claim("jobs")

    with pytest.raises(RuntimeError), transaction.atomic():
        assert Message.objects.discard(held.pk)
        raise RuntimeError
    assert deaths == []
    with transaction.atomic():
        Message.objects.discard(held.pk)
        assert deaths == []

    assert deaths == [(held.pk, "Discarded", "during delivery 1")]


@pytest.mark.rule("15.6")
@TRANSACTIONAL
def test_rolled_back_discard_leaves_the_lease(clock, queue):
    held = enqueue_and_claim("jobs")

    with pytest.raises(RuntimeError), transaction.atomic():
        Message.objects.discard(held.pk)
        raise RuntimeError

    held.complete()


# Activate


@pytest.mark.rule("15.7")
def test_activated_message_is_claimed_like_any_other(clock, queue):
    message = deferred("jobs")
    clock.advance(5)

    assert Message.objects.activate(message.pk) is True
    assert Message.objects.activate(message.pk) is False

    again = claim_one("jobs")
    assert (again.pk, again.delivery_count, again.visible_at) == (message.pk, 2, clock.now)


@pytest.mark.rule("15.7")
@pytest.mark.parametrize("state", ["active", "locked", "scheduled", *FINISHED])
def test_only_deferred_messages_are_activated(clock, make_queue, state):
    make_queue("jobs", retain_completed=60)
    message = {**UNFINISHED, **FINISHED}[state]()
    before = row_of(message)

    assert Message.objects.activate(message.pk) is False

    assert row_of(message) == before


@pytest.mark.rule("15.7")
def test_activated_message_keeps_its_place_in_its_line(clock, queue):
    head = deferred("jobs", group_id="g")
    behind = enqueue("jobs", None, group_id="g")

    Message.objects.activate(head.pk)

    assert claim_ids("jobs") == [head.pk]
    assert state_of(behind) == "active"


@pytest.mark.rule("15.7")
def test_activated_message_waits_behind_an_earlier_redriven_one(clock, strict_queue):
    first = dead_letter("strict")
    later = deferred("strict")
    DeadLetter.objects.redrive([first.pk])
    assert claim_ids("strict") == []

    Message.objects.activate(later.pk)

    assert claim_ids("strict") == [first.pk]


@pytest.mark.rule("15.7")
def test_message_activated_at_its_limit_is_delivered_once_more(clock, make_queue):
    make_queue("jobs", max_delivery_count=1, backoff_base=0)
    message = deferred("jobs")

    Message.objects.activate(message.pk)
    claim_one("jobs").abandon()

    row = row_of(message)
    assert (row["state"], row["delivery_count"]) == ("dead_lettered", 2)
    assert row["dead_letter_reason"] == "MaxDeliveryCountExceeded"


@pytest.mark.rule("15.7")
def test_many_deferred_messages_are_activated(clock, queue, make_queue):
    make_queue("others")
    first, second, third = (deferred("jobs") for _ in range(3))
    other = deferred("others")
    active = enqueue("jobs", None)

    assert Message.objects.activate_many([first.pk, active.pk, 10**9]) == 1
    assert Message.objects.activate_queue("jobs", limit=1) == 1
    assert Message.objects.activate_queue("jobs") == 1
    assert Message.objects.activate_queue("jobs") == 0

    assert {state_of(m) for m in (first, second, third)} == {"active"}
    assert state_of(other) == "deferred"


@pytest.mark.parametrize("verb", ["discard", "activate"])
def test_message_of_another_queue_is_not_changed(make_queue, verb):
    make_queue("a")
    make_queue("b")
    Message.objects.enqueue("a", 1)
    (held,) = Message.objects.claim("a")
    held.defer()

    assert not getattr(Message.objects, verb)(held.pk, queue="b")
    assert Message.objects.get(pk=held.pk).state == "deferred"
    assert getattr(Message.objects, verb)(held.pk, queue="a")
