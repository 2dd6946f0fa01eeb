"""3.1 to 3.3 and 3.5 to 3.8 Settle and renew."""

from copy import copy
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_mqlite import LockLost, enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Message
from tests.support.transactions import committed_messages
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    enqueue_and_claim,
    reap,
    row_of,
    state_of,
)

pytestmark = pytest.mark.django_db(transaction=True)

SETTLE = {
    "complete": lambda message: message.complete(),
    "abandon": lambda message: message.abandon(delay=0),
    "reject": lambda message: message.reject("R"),
    "defer": lambda message: message.defer(),
}
FENCED = {**SETTLE, "renew": lambda message: message.renew()}


@pytest.mark.rule("3.1")
def test_complete_deletes_the_message_or_keeps_it_as_completed(clock, queue, make_queue):
    make_queue("kept", retain_completed=60)
    message, kept = enqueue_and_claim("jobs"), enqueue_and_claim("kept", {"a": 1})
    clock.advance(1)

    message.complete()
    kept.complete()

    assert committed_messages() == [kept.pk]
    row = Message.objects.get(pk=kept.pk)
    assert (row.state, row.finished_at, row.data) == ("completed", clock.now, {"a": 1})
    assert (row.lock_token, row.locked_until, row.delivery_count) == (None, None, 1)
    assert claim_ids("kept") == []


@pytest.mark.rule("3.2")
@pytest.mark.parametrize(
    ("limit", "own_limit"), [(3, None), (9, 3), (1, 3)], ids=["queue's", "own", "own above queue's"]
)
def test_abandoned_message_is_active_scheduled_or_dead_at_its_limit(
    clock, make_queue, limit, own_limit
):
    make_queue("jobs", max_delivery_count=limit)
    message = enqueue_and_claim("jobs", max_delivery_count=own_limit)

    message.abandon(delay=0)
    assert state_of(message) == "active"

    claim_one("jobs").abandon(delay=60)
    assert state_of(message) == "scheduled"
    assert Message.objects.get(pk=message.pk).visible_at == clock.now + timedelta(seconds=60)

    clock.advance(60)
    activate()
    claim_one("jobs").abandon(delay=60, error=ValueError("no article 17"))
    dead = DeadLetter.objects.get(pk=message.pk)
    assert (dead.dead_letter_reason, dead.delivery_count) == ("MaxDeliveryCountExceeded", 3)
    assert (dead.dead_letter_description, dead.finished_at) == ("no article 17", clock.now)
    assert claim_ids("jobs") == []


def test_dead_letter_without_an_error_counts_its_deliveries(clock, make_queue):
    make_queue("jobs", max_delivery_count=1)
    message = enqueue_and_claim("jobs")

    message.abandon()

    assert DeadLetter.objects.get(pk=message.pk).dead_letter_description == "abandoned 1 times"


@pytest.mark.rule("3.2")
def test_abandon_without_a_delay_uses_the_backoff_of_the_queue(clock, make_queue):
    make_queue("jobs", backoff_base=10, backoff_max=25, max_delivery_count=100)
    message = enqueue_and_claim("jobs")
    delays = []
    for _ in range(5):
        message.abandon()
        visible_at = Message.objects.get(pk=message.pk).visible_at
        delays.append((visible_at - clock.now).total_seconds())
        clock.advance(25)
        activate()
        message = claim_one("jobs")

    bounds = [(5, 10), (10, 20), (12.5, 25), (12.5, 25), (12.5, 25)]
    for delay, (least, most) in zip(delays, bounds, strict=True):
        assert least <= delay <= most


@pytest.mark.rule("3.2")
def test_error_of_each_failed_delivery_is_kept(clock, queue):
    enqueue("jobs", None)
    for text in ("first", "second"):
        started_at = clock.now_ms()
        message = claim_one("jobs", worker="me")
        clock.advance(2)
        try:
            raise LookupError(text)
        except LookupError as error:
            message.abandon(delay=0, error=error)

    first, second = Message.objects.get(pk=message.pk).errors
    assert (first["class"], first["message"]) == ("builtins.LookupError", "first")
    assert (second["message"], second["delivery"], second["worker"]) == ("second", 2, "me")
    assert (second["started_at"], second["failed_at"]) == (started_at, clock.now_ms())
    assert "raise LookupError(text)" in first["traceback"]


class BrokenStr(Exception):
    def __str__(self):
        raise RuntimeError("no str")


AWKWARD = [ValueError("a\0b"), ValueError("a\ud800b"), ValueError("x" * 10_000_000), BrokenStr(),
           "a\0b", "a\ud800b", "", SystemExit()]  # fmt: skip


@pytest.mark.rule("3.2")
@pytest.mark.parametrize("error", AWKWARD, ids=range(len(AWKWARD)))
@pytest.mark.parametrize("verb", ["abandon", "reject", "last abandon"])
def test_no_error_prevents_a_settle(clock, make_queue, error, verb):
    make_queue("jobs", max_delivery_count=1 if verb == "last abandon" else 10)
    message = enqueue_and_claim("jobs")

    if verb == "reject":
        message.reject("R", error=error)
    else:
        message.abandon(delay=0, error=error)

    row = Message.objects.get(pk=message.pk)
    assert len(row.errors) == 1
    assert len(str(row.errors)) < 30_000
    assert row.state == ("active" if verb == "abandon" else "dead_lettered")


@pytest.mark.rule("3.3")
def test_rejected_message_is_dead_with_reason_and_description(clock, queue):
    enqueue_and_claim("jobs", {"article": 17}).abandon(delay=0, error="first")
    message = claim_one("jobs")

    message.reject("UnknownArticle", "no article 17", error=KeyError(17))

    dead = DeadLetter.objects.get(pk=message.pk)
    assert dead.dead_letter_reason == "UnknownArticle"
    assert dead.dead_letter_description == "no article 17"
    assert (dead.delivery_count, dead.finished_at, dead.data) == (2, clock.now, {"article": 17})
    assert [entry["message"] for entry in dead.errors] == ["first", "17"]


@pytest.mark.rule("3.3")
def test_rejection_without_an_error_adds_none(clock, queue):
    message = enqueue_and_claim("jobs")

    message.reject("R")

    dead = DeadLetter.objects.get(pk=message.pk)
    assert (dead.errors, dead.dead_letter_description) == (None, "")


@pytest.mark.rule("3.3")
@pytest.mark.parametrize(
    "text", ["a\0b", "a\ud800b", "x" * 10_000_000], ids=["NUL", "surrogate", "long"]
)
@pytest.mark.parametrize("part", ["reason", "description"])
def test_no_text_prevents_a_rejection(clock, queue, text, part):
    message = enqueue_and_claim("jobs")

    message.reject(**{"reason": "R", part: text})

    stored = getattr(DeadLetter.objects.get(pk=message.pk), f"dead_letter_{part}")
    assert 0 < len(stored) < 10_000
    assert "\0" not in stored


@pytest.mark.rule("3.5")
def test_renew_counts_from_now_and_never_shortens_a_lease(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(10)

    message.renew()
    assert message.locked_until == clock.now + timedelta(seconds=30)

    message.renew(timedelta(seconds=1))
    assert message.locked_until == clock.now + timedelta(seconds=30)

    message.renew(60)
    assert message.locked_until == clock.now + timedelta(seconds=60)
    assert Message.objects.get(pk=message.pk).locked_until == message.locked_until


@pytest.mark.rule("3.5")
@pytest.mark.rule("3.8")
def test_batch_of_renewals_has_a_result_for_each_message(clock, queue, make_queue):
    make_queue("short", lock_duration=10)
    make_queue("long", lock_duration=300)
    expired, long = enqueue_and_claim("short"), enqueue_and_claim("long")
    enqueue_many("jobs", range(4))
    kept, settled, abandoned, rejected = Message.objects.claim("jobs", limit=4)
    settled.complete()
    abandoned.abandon(delay=0)
    rejected.reject("R")
    never_claimed = enqueue("jobs", None)
    clock.advance(10)

    held = Message.objects.renew_many(
        [expired, kept, settled, abandoned, rejected, never_claimed, long]
    )

    assert held == [False, True, False, False, False, False, True]
    assert (kept.locked_until - clock.now, long.locked_until - clock.now) == (
        timedelta(seconds=30),
        timedelta(seconds=300),
    )
    assert expired.locked_until == clock.now
    assert Message.objects.renew_many([]) == []


@pytest.mark.rule("3.8")
def test_batch_of_completions_has_a_result_for_each_message(clock, queue, make_queue):
    make_queue("kept", retain_completed=60)
    for name in ("jobs", "jobs", "jobs", "kept", "kept"):
        enqueue(name, None)
    jobs, kept = Message.objects.claim("jobs", limit=3), Message.objects.claim("kept", limit=2)
    jobs[1].abandon(delay=0)
    kept[0].reject("R")
    messages = [*jobs, enqueue("jobs", None), *kept]

    held = Message.objects.complete_many(messages)

    assert held == [True, False, True, False, False, True]
    assert [state_of(message) for message in messages] == [
        "gone", "active", "gone", "active", "dead_lettered", "completed",
    ]  # fmt: skip
    assert Message.objects.complete_many([]) == []


@pytest.mark.rule("3.6")
@pytest.mark.parametrize("verb", FENCED)
def test_expired_lease_is_lost(clock, queue, verb):
    message = enqueue_and_claim("jobs")
    clock.advance(30)
    before = row_of(message)

    with pytest.raises(LockLost) as caught:
        FENCED[verb](message)

    assert (caught.value.queue, caught.value.id, caught.value.verb) == ("jobs", message.pk, verb)
    assert row_of(message) == before


@pytest.mark.rule("3.6")
@pytest.mark.parametrize("verb", FENCED)
def test_lease_of_an_earlier_delivery_is_lost(clock, queue, verb):
    stale = enqueue_and_claim("jobs")
    clock.advance(30)
    reap()
    live = claim_one("jobs")

    with pytest.raises(LockLost):
        FENCED[verb](stale)

    live.complete()


@pytest.mark.rule("3.6")
@pytest.mark.parametrize("verb", FENCED)
def test_message_that_was_never_claimed_has_no_lease(clock, queue, verb):
    message = enqueue("jobs", None)

    with pytest.raises(LockLost):
        FENCED[verb](message)

    assert state_of(message) == "active"


@pytest.mark.rule("3.7")
@pytest.mark.parametrize("verb", SETTLE)
def test_settle_in_atomic_commits_with_the_callers_rows(clock, queue, verb):
    message = enqueue_and_claim("jobs")

    with transaction.atomic():
        Group.objects.create(name="effect")
        SETTLE[verb](message)

    assert Group.objects.count() == 1
    assert state_of(message) != "locked"


@pytest.mark.rule("3.7")
@pytest.mark.parametrize("verb", SETTLE)
def test_rollback_undoes_rows_and_settle_and_keeps_the_lease(clock, queue, verb):
    message = enqueue_and_claim("jobs")
    before = row_of(message)

    with pytest.raises(RuntimeError), transaction.atomic():
        Group.objects.create(name="effect")
        SETTLE[verb](message)
        raise RuntimeError

    assert not Group.objects.exists()
    assert row_of(message) == before
    message.complete()
    assert state_of(message) == "gone"


@pytest.mark.rule("3.7")
@pytest.mark.parametrize("verb", SETTLE)
def test_lost_lease_rolls_back_the_callers_rows(clock, queue, verb):
    message = enqueue_and_claim("jobs")
    clock.advance(30)

    with pytest.raises(LockLost), transaction.atomic():
        Group.objects.create(name="effect")
        SETTLE[verb](message)

    assert not Group.objects.exists()
    assert state_of(message) == "locked"


@pytest.mark.rule("3.7")
def test_savepoint_rollback_undoes_its_settle_only(clock, queue):
    for _ in range(2):
        enqueue("jobs", None)
    kept, undone = Message.objects.claim("jobs", limit=2)

    with transaction.atomic():
        kept.complete()
        with pytest.raises(RuntimeError), transaction.atomic():
            undone.complete()
            raise RuntimeError

    assert (state_of(kept), state_of(undone)) == ("gone", "locked")


@pytest.mark.rule("3.6")
@pytest.mark.rule("3.8")
@pytest.mark.parametrize("verb", ["renew_many", "complete_many"])
def test_token_is_valid_for_its_own_message_only(clock, queue, make_queue, verb):
    make_queue("other")
    for _ in range(2):
        enqueue("jobs", None)
    first, second = Message.objects.claim("jobs", limit=2)
    moved, stranger = copy(first), copy(second)
    moved.queue = "other"
    stranger.claimed_token = first.lock_token
    before = row_of(second)

    held = getattr(Message.objects, verb)([stranger, moved, first, stranger, moved])

    assert held == [False, False, True, False, False]
    assert row_of(second) == before
