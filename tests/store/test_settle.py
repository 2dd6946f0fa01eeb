"""Every statement that settles or renews is fenced by the whole lease, and by time."""

from copy import copy

import pytest

from django_mqlite import enqueue
from django_mqlite.models import Message
from django_mqlite.types import Abandonment, Completion, Deferral, Rejection
from tests.support.verbs import claim_one, enqueue_and_claim, reap

pytestmark = pytest.mark.django_db


def settle_as(outcome, error=None):
    return lambda message: Message.objects.settle(message, outcome, error=error)


VERBS = {
    "complete": settle_as(Completion()),
    "abandon": settle_as(Abandonment(delay_ms=0)),
    "abandon later": settle_as(Abandonment(delay_ms=5_000), ValueError("x")),
    "abandon with backoff": settle_as(Abandonment(), ValueError("x")),
    "reject": settle_as(Rejection(reason="R"), "because"),
    "defer": settle_as(Deferral()),
    "renew": lambda message: Message.objects.renew_many([message], 60)[0],
}


@pytest.fixture(params=[0, 3_600], ids=["deleting", "retaining"])
def message(clock, make_queue, request):
    """A claimed message; a queue that retains messages completes them with another statement."""
    make_queue("jobs", retain_completed=request.param)
    return enqueue_and_claim("jobs")


def forged(message, **changes):
    """Return the message with another lease."""
    other = copy(message)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def released(message, clock):
    clock.advance(30)
    reap()
    return message


def token_of_an_earlier_delivery(message, clock):
    released(message, clock)
    claim_one(message.queue)
    return message


def token_of_the_same_batch(message, clock):
    message.abandon(delay=0)
    enqueue(message.queue, None)
    first, second = Message.objects.claim(message.queue, limit=2)
    return forged(first, claimed_token=second.lock_token)


WRONG_LEASES = {
    "queue": lambda message, clock: forged(message, queue="other"),
    "id": lambda message, clock: forged(message, id=message.pk + 1),
    "id of another claimed message": lambda message, clock: forged(
        message, id=enqueue_and_claim(message.queue).pk
    ),
    "token of the same batch": token_of_the_same_batch,
    "token of an earlier delivery": token_of_an_earlier_delivery,
    "released": released,
    "empty token": lambda message, clock: forged(message, claimed_token=""),
    "upper case": lambda message, clock: forged(message, claimed_token=message.lock_token.upper()),
    "start of the token": lambda message, clock: forged(
        message, claimed_token=message.lock_token[:32]
    ),
    "wildcard": lambda message, clock: forged(message, claimed_token="%"),
}


def rows():
    return list(Message.objects.order_by("pk").values())


@pytest.mark.rule("3.6")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("wrong", WRONG_LEASES)
def test_wrong_lease_changes_nothing(clock, message, verb, wrong):
    other = WRONG_LEASES[wrong](message, clock)
    before = rows()

    assert not VERBS[verb](other)

    assert rows() == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("after", "holds"), [(29.999, True), (30, False), (9_999_999, False)])
def test_lease_holds_until_its_deadline(clock, message, verb, after, holds):
    before = rows()
    clock.advance(after)

    assert VERBS[verb](message) is holds

    assert (rows() != before) is holds


@pytest.mark.parametrize("verb", ["complete_many", "renew_many"])
def test_stale_lease_in_a_batch_is_lost_beside_the_live_one(clock, queue, verb):
    stale = enqueue_and_claim("jobs")
    clock.advance(30)
    reap()
    live = claim_one("jobs")
    expired_at = stale.locked_until

    assert getattr(Message.objects, verb)([stale, live]) == [False, True]
    assert stale.locked_until == expired_at
