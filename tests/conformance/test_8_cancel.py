"""8.2 Cancel."""

import pytest
from django.db import transaction

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message
from tests.support.transactions import committed_messages
from tests.support.verbs import activate, claim_ids, dead_letter, enqueue_and_claim, state_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("8.2")]


def test_scheduled_message_that_was_never_delivered_is_deleted(clock, queue):
    message = enqueue("jobs", None, delay=60)
    other = enqueue("jobs", None, delay=60)

    assert Message.objects.cancel(message.pk) is True
    assert Message.objects.cancel(message.pk) is False

    assert (state_of(message), state_of(other)) == ("gone", "scheduled")
    clock.advance(60)
    activate()
    assert claim_ids("jobs") == [other.pk]


@pytest.mark.parametrize("active", [False, True])
def test_due_message_is_cancelled_until_it_is_active(clock, queue, active):
    message = enqueue("jobs", None, delay=60)
    clock.advance(60)
    if active:
        activate()

    assert message.cancel() is not active


def backing_off():
    message = enqueue_and_claim("jobs")
    message.abandon(delay=60)
    return message


def backing_off_by_default():
    message = enqueue_and_claim("jobs")
    message.abandon()
    return message


def redriven(dead):
    """Redrive two dead letters at a rate; return the second one, which is scheduled."""
    DeadLetter.objects.redrive([dead_letter("jobs").pk, dead.pk], rate=0.01)
    assert state_of(dead) == "scheduled"
    return dead


def redriven_in_place():
    return redriven(dead_letter("jobs"))


def redriven_with_errors():
    message = enqueue_and_claim("jobs")
    message.reject("Broken", error="x")
    return redriven(message)


def redriven_into_the_queue():
    DeadLetter.objects.redrive(
        [dead_letter("jobs").pk, dead_letter("jobs").pk], into="jobs", rate=1
    )
    return Message.objects.order_by("pk").last()


def active():
    return enqueue("jobs", None)


def locked():
    return enqueue_and_claim("jobs")


def deferred():
    message = enqueue_and_claim("jobs")
    message.defer()
    return message


def dead():
    return dead_letter("jobs")


def completed():
    message = enqueue_and_claim("jobs")
    message.complete()
    return message


@pytest.mark.parametrize(
    "make",
    [
        backing_off,
        backing_off_by_default,
        redriven_in_place,
        redriven_with_errors,
        redriven_into_the_queue,
        active,
        locked,
        deferred,
        dead,
        completed,
    ],
)
def test_other_message_is_not_cancelled(clock, make_queue, make):
    make_queue("jobs", retain_completed=3_600)
    message = make()
    before = list(Message.objects.order_by("pk").values())

    assert message.cancel() is False

    assert list(Message.objects.order_by("pk").values()) == before


@pytest.mark.django_db(transaction=True)
def test_cancel_joins_the_callers_transaction(clock, queue):
    message = enqueue("jobs", None, delay=60)

    with pytest.raises(RuntimeError), transaction.atomic():
        assert message.cancel()
        raise RuntimeError

    assert committed_messages() == [message.pk]
    assert message.cancel()
