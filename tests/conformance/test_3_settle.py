"""3 Settle."""

from copy import copy
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_mqlite import LockLost, enqueue
from django_mqlite.models import DeadLetter, Message
from tests.support.transactions import committed_messages
from tests.support.verbs import claim_one, enqueue_and_claim, overwrite, reap, row_of, state_of

pytestmark = pytest.mark.django_db(transaction=True)

SETTLE = {
    "complete": lambda message: message.complete(),
    "abandon": lambda message: message.abandon(delay=0),
    "reject": lambda message: message.reject("R"),
}


@pytest.mark.rule("3.1")
def test_complete_deletes_the_row(clock, queue):
    message = enqueue_and_claim("jobs")

    message.complete()

    assert committed_messages() == []


@pytest.mark.rule("3.1")
def test_complete_keeps_the_row_as_completed_where_the_queue_retains(clock, make_queue):
    make_queue("jobs", retain_completed=60)
    message = enqueue_and_claim("jobs")

    message.complete()

    kept = Message.objects.get(pk=message.pk)
    assert (kept.state, kept.finished_at) == ("completed", clock.now)


@pytest.mark.rule("3.2")
def test_abandon_makes_it_active_or_scheduled_or_a_dead_letter_at_the_bound(clock, make_queue):
    make_queue("jobs", max_delivery_count=3)
    message = enqueue_and_claim("jobs")

    message.abandon(delay=0)
    assert state_of(message) == "active"

    claim_one("jobs").abandon(delay=60)
    assert state_of(message) == "scheduled"
    assert Message.objects.get(pk=message.pk).visible_at == clock.now + timedelta(seconds=60)

    overwrite(Message.objects.filter(pk=message.pk), state="active")
    claim_one("jobs").abandon(delay=60)
    dead = DeadLetter.objects.get(pk=message.pk)
    assert (dead.dead_letter_reason, dead.delivery_count) == ("MaxDeliveryCountExceeded", 3)


@pytest.mark.rule("3.2")
def test_the_error_of_each_failed_delivery_is_remembered(clock, queue):
    enqueue("jobs", None)
    for text in ("first", "second"):
        try:
            raise LookupError(text)
        except LookupError as error:
            message = claim_one("jobs", worker="me")
            message.abandon(delay=0, error=error)

    first, second = Message.objects.get(pk=message.pk).errors
    assert (first["class"], first["message"]) == ("builtins.LookupError", "first")
    assert (second["message"], second["delivery"], second["worker"]) == ("second", 2, "me")
    assert "raise LookupError(text)" in first["traceback"]


@pytest.mark.rule("3.2")
def test_errors_are_bounded_in_number_and_size(clock, make_queue):
    make_queue("jobs", max_delivery_count=1_000)
    message = enqueue("jobs", None)
    for _ in range(30):
        claim_one("jobs").abandon(delay=0, error=ValueError("x" * 1_000_000))

    assert len(str(Message.objects.get(pk=message.pk).errors)) < 250_000


@pytest.mark.rule("3.2")
def test_nul_surrogates_and_a_broken_str_never_stop_a_settle(clock, queue):
    class Broken(Exception):
        def __str__(self):
            raise RuntimeError

    enqueue("jobs", None)
    for error in (ValueError("\0"), ValueError("\ud800"), Broken(), "\0\ud800"):
        message = claim_one("jobs")
        message.abandon(delay=0, error=error)

    assert len(Message.objects.get(pk=message.pk).errors) == 4


@pytest.mark.rule("3.3")
def test_reject_dead_letters_with_reason_and_description(clock, queue):
    message = enqueue_and_claim("jobs")

    message.reject("UnknownArticle", "no article 17")

    dead = DeadLetter.objects.get(pk=message.pk)
    assert (dead.dead_letter_reason, dead.dead_letter_description, dead.delivery_count) == (
        "UnknownArticle",
        "no article 17",
        1,
    )


@pytest.mark.rule("3.5")
def test_renew_counts_from_now_never_shortens_and_never_revives(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(10)

    message.renew()
    assert message.locked_until == clock.now + timedelta(seconds=30)

    message.renew(timedelta(seconds=1))
    assert message.locked_until == clock.now + timedelta(seconds=30)

    clock.advance(30)
    with pytest.raises(LockLost):
        message.renew()
    assert state_of(message) == "locked"


@pytest.mark.rule("3.5")
@pytest.mark.rule("3.8")
def test_a_batch_of_renewals_reports_each(clock, queue):
    for _ in range(3):
        enqueue("jobs", None)
    first, second, third = Message.objects.claim("jobs", limit=3)
    second.complete()

    assert Message.objects.renew_many([first, second, third]) == [True, False, True]


@pytest.mark.rule("3.6")
@pytest.mark.parametrize("verb", [*SETTLE, "renew"])
def test_equality_is_already_expired_reaper_or_not(clock, queue, verb):
    message = enqueue_and_claim("jobs")
    clock.advance(30)
    before = row_of(message)

    with pytest.raises(LockLost):
        {**SETTLE, "renew": lambda m: m.renew()}[verb](message)

    assert row_of(message) == before


@pytest.mark.rule("3.6")
@pytest.mark.parametrize("verb", [*SETTLE, "renew"])
def test_a_lease_that_another_has_now_is_lost(clock, queue, verb):
    stale = enqueue_and_claim("jobs")
    clock.advance(30)
    reap()
    live = claim_one("jobs")

    with pytest.raises(LockLost):
        {**SETTLE, "renew": lambda m: m.renew()}[verb](stale)

    live.complete()


@pytest.mark.rule("3.7")
@pytest.mark.parametrize("verb", SETTLE)
def test_a_settle_in_atomic_commits_with_the_callers_effects(clock, queue, verb):
    message = enqueue_and_claim("jobs")

    with transaction.atomic():
        Group.objects.create(name="effect")
        SETTLE[verb](message)

    assert Group.objects.count() == 1
    assert state_of(message) != "locked"


@pytest.mark.rule("3.7")
@pytest.mark.parametrize("verb", SETTLE)
def test_a_rollback_undoes_effects_and_settle_and_the_lease_still_holds(clock, queue, verb):
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
def test_a_lost_lock_rolls_the_callers_effects_back(clock, queue, verb):
    message = enqueue_and_claim("jobs")
    clock.advance(30)

    with pytest.raises(LockLost), transaction.atomic():
        Group.objects.create(name="effect")
        SETTLE[verb](message)

    assert not Group.objects.exists()
    assert state_of(message) == "locked"


@pytest.mark.rule("3.7")
def test_a_settle_in_a_savepoint_is_undone_with_it_alone(clock, queue):
    for _ in range(2):
        enqueue("jobs", None)
    kept, undone = Message.objects.claim("jobs", limit=2)

    with transaction.atomic():
        kept.complete()
        with pytest.raises(RuntimeError), transaction.atomic():
            undone.complete()
            raise RuntimeError

    assert (state_of(kept), state_of(undone)) == ("gone", "locked")


@pytest.mark.rule("3.8")
def test_a_batch_of_completions_reports_each_and_never_fails_as_a_whole(clock, queue):
    for _ in range(3):
        enqueue("jobs", None)
    first, second, third = Message.objects.claim("jobs", limit=3)
    second.abandon(delay=0)

    assert Message.objects.complete_many([first, second, third]) == [True, False, True]
    assert committed_messages() == [second.pk]


@pytest.mark.rule("3.6")
@pytest.mark.rule("3.8")
@pytest.mark.parametrize("verb", ["renew_many", "complete_many"])
def test_a_token_never_vouches_for_another_message_not_even_beside_its_own(
    clock, queue, make_queue, verb
):
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
