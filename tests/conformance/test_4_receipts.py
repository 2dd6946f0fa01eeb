"""4.1 to 4.4 Receipts: a repeated request succeeds, another one raises LockLost."""

from copy import copy
from datetime import timedelta

import pytest
from django.db import transaction

from django_mqlite import LockLost, enqueue_many
from django_mqlite.models import Message, SettlementReceipt
from django_mqlite.verbs import sweeps
from tests.support.verbs import activate, claim_one, enqueue_and_claim, row_of

pytestmark = pytest.mark.django_db

LIFE = timedelta(minutes=30)

REQUESTS = {
    "complete": lambda m: m.complete(),
    "abandon": lambda m: m.abandon(),
    "abandon at once": lambda m: m.abandon(delay=0),
    "abandon for 5 s": lambda m: m.abandon(delay=5),
    "abandon for 60 s": lambda m: m.abandon(delay=timedelta(minutes=1)),
    "reject": lambda m: m.reject("R"),
    "reject for another reason": lambda m: m.reject("S"),
    "reject with a description": lambda m: m.reject("R", "because"),
    "defer": lambda m: m.defer(),
}


def receipts():
    return list(SettlementReceipt.objects.order_by("message", "lock_token").values())


def everything():
    return list(Message.objects.order_by("pk").values()), receipts()


def with_token_of(message, other):
    forged = copy(message)
    forged.claimed_token = other.lock_token
    return forged


@pytest.mark.rule("4.1")
@pytest.mark.parametrize("name", REQUESTS)
def test_settle_writes_a_receipt_for_the_exact_request(clock, queue, name):
    message = enqueue_and_claim("jobs")

    REQUESTS[name](message)

    (receipt,) = receipts()
    assert (receipt["message"], receipt["lock_token"]) == (message.pk, message.lock_token)
    assert (receipt["queue"], receipt["verb"]) == ("jobs", name.split()[0])
    assert receipt["expires_at"] == clock.now + LIFE


@pytest.mark.rule("4.1")
def test_receipt_is_rolled_back_with_its_settle(clock, queue):
    message = enqueue_and_claim("jobs")

    with pytest.raises(RuntimeError), transaction.atomic():
        message.complete()
        raise RuntimeError

    assert receipts() == []
    message.abandon(delay=0)  # no receipt of the completion refuses it


@pytest.mark.rule("4.1")
def test_refused_settle_writes_no_receipt(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(30)

    with pytest.raises(LockLost):
        message.complete()

    assert receipts() == []


@pytest.mark.rule("4.2")
@pytest.mark.parametrize("second", REQUESTS)
@pytest.mark.parametrize("first", REQUESTS)
def test_only_the_identical_request_succeeds_again(clock, queue, first, second):
    message = enqueue_and_claim("jobs")
    REQUESTS[first](message)
    before = everything()

    if first == second:
        REQUESTS[second](message)
    else:
        with pytest.raises(LockLost):
            REQUESTS[second](message)

    assert everything() == before


@pytest.mark.rule("4.2")
def test_error_is_no_part_of_the_request(clock, queue):
    message = enqueue_and_claim("jobs")
    message.abandon(delay=5, error=ValueError("first"))

    message.abandon(delay=5, error=ValueError("second"))

    assert [entry["message"] for entry in Message.objects.get().errors] == ["first"]


@pytest.mark.rule("4.2")
@pytest.mark.parametrize("retain", [0, 3_600], ids=["deleting", "retaining"])
def test_repeated_batch_of_completions_succeeds(clock, make_queue, retain):
    make_queue("jobs", retain_completed=retain)
    enqueue_many("jobs", range(3))
    messages = Message.objects.claim("jobs", limit=3)
    Message.objects.complete_many(messages[:2])

    assert Message.objects.complete_many(messages) == [True, True, True]
    assert Message.objects.complete_many(messages) == [True, True, True]


@pytest.mark.rule("4.2")
@pytest.mark.parametrize("name", REQUESTS)
def test_receipt_is_valid_for_its_own_message_only(clock, queue, make_queue, name):
    make_queue("other")
    enqueue_many("jobs", range(2))
    settled, live = Message.objects.claim("jobs", limit=2)
    elsewhere = enqueue_and_claim("other")
    REQUESTS[name](settled)
    before = everything()

    strangers = [with_token_of(live, settled), with_token_of(elsewhere, settled)]
    moved = copy(settled)
    moved.queue = "other"

    for wrong in [*strangers, moved]:
        with pytest.raises(LockLost):
            REQUESTS[name](wrong)
    assert everything() == before


@pytest.mark.rule("4.2")
def test_receipt_is_valid_for_its_own_message_only_in_a_batch(clock, queue, make_queue):
    make_queue("other")
    enqueue_many("jobs", range(2))
    settled, live = Message.objects.claim("jobs", limit=2)
    elsewhere = enqueue_and_claim("other")
    moved = copy(settled)
    moved.queue = "other"
    settled.complete()
    before = everything()

    held = Message.objects.complete_many(
        [with_token_of(live, settled), settled, with_token_of(elsewhere, settled), moved]
    )

    assert held == [False, True, False, False]
    assert everything() == before


@pytest.mark.rule("4.3")
@pytest.mark.parametrize("name", REQUESTS)
def test_receipt_expires_before_it_is_swept(clock, queue, name):
    message = enqueue_and_claim("jobs")
    REQUESTS[name](message)

    clock.advance(LIFE - timedelta(milliseconds=1))
    assert sweeps.prune_records("default", limit=100) == 0
    REQUESTS[name](message)

    clock.advance(0.001)
    assert len(receipts()) == 1
    with pytest.raises(LockLost):
        REQUESTS[name](message)

    assert sweeps.prune_records("default", limit=100) == 1
    assert receipts() == []


@pytest.mark.rule("4.4")
def test_repeated_settle_has_no_effect(clock, queue):
    message = enqueue_and_claim("jobs")
    message.abandon(delay=5)
    clock.advance(5)
    activate()
    again = claim_one("jobs")
    before = everything()
    clock.advance(1)

    message.abandon(delay=5)

    assert everything() == before
    again.complete()


@pytest.mark.rule("4.4")
def test_repeated_completion_keeps_the_retained_row(clock, make_queue):
    make_queue("jobs", retain_completed=3_600)
    message = enqueue_and_claim("jobs")
    message.complete()
    before = row_of(message)
    clock.advance(1)

    message.complete()

    assert row_of(message) == before
