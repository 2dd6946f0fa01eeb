"""10.7 Deliveries that a stopping worker interrupts."""

import pytest

from django_mqlite import LockLost, enqueue, enqueue_many, signals
from django_mqlite.models import DeadLetter, Message
from django_mqlite.store.sqlite.leases import MAX_UNCOUNTED_INTERRUPTIONS
from django_mqlite.verbs.sweeps import interrupt
from tests.support.verbs import claim_one, row_of, state_of

pytestmark = pytest.mark.django_db

REASON = "the worker was stopped"


def interrupt_one(message) -> set[int]:
    return interrupt("default", [message.lease], reason=REASON)


@pytest.mark.rule("10.7")
def test_interrupted_delivery_is_recorded_and_not_counted(clock, make_queue):
    make_queue("jobs", max_delivery_count=1)
    enqueue("jobs", None)
    message = claim_one("jobs")

    assert interrupt_one(message) == {message.pk}

    row = row_of(message)
    assert (row["state"], row["delivery_count"], row["interruptions"]) == ("active", 0, 1)
    (error,) = row["errors"]
    assert error["class"] == "django_mqlite.exceptions.Interrupted"
    assert (error["message"], error["delivery"]) == (REASON, 1)
    again = claim_one("jobs")
    assert (again.pk, again.delivery_count) == (message.pk, 1)


@pytest.mark.rule("10.7")
@pytest.mark.parametrize("bound", [1, 3])
def test_interruptions_after_the_tenth_count_as_deliveries(clock, make_queue, bound):
    make_queue("jobs", max_delivery_count=bound)
    enqueue("jobs", None)
    states = []

    for _ in range(MAX_UNCOUNTED_INTERRUPTIONS + bound):
        message = claim_one("jobs")
        interrupt_one(message)
        states.append(state_of(message))

    assert MAX_UNCOUNTED_INTERRUPTIONS == 10
    assert states == [*["active"] * (10 + bound - 1), "dead_lettered"]
    dead = DeadLetter.objects.get()
    assert (dead.dead_letter_reason, dead.delivery_count) == ("MaxDeliveryCountExceeded", bound)
    assert dead.interruptions == 10 + bound


@pytest.mark.rule("10.7")
def test_failed_delivery_counts_beside_an_interrupted_one(clock, make_queue):
    make_queue("jobs", max_delivery_count=2, backoff_base=0)
    enqueue("jobs", None)
    claim_one("jobs").abandon(error="broken")
    interrupt_one(claim_one("jobs"))

    claim_one("jobs").abandon(error="broken")

    assert DeadLetter.objects.get().delivery_count == 2


def test_signal_has_the_number_of_the_interrupted_delivery(
    clock, queue, caplog, django_capture_on_commit_callbacks
):
    sent = []

    def receive(**facts):
        sent.append((facts["delivery_count"], facts["error"]))

    enqueue("jobs", None)
    message = claim_one("jobs")

    with django_capture_on_commit_callbacks(execute=True):
        signals.message_abandoned.connect(receive)
        interrupt_one(message)
    signals.message_abandoned.disconnect(receive)

    assert sent == [(1, f"delivery 1: interrupted: {REASON}")]
    assert "failed" not in caplog.text


@pytest.mark.rule("10.7")
def test_redrive_resets_the_interruptions(clock, queue):
    enqueue("jobs", None)
    interrupt_one(claim_one("jobs"))
    claim_one("jobs").reject("Broken")
    dead = DeadLetter.objects.get()

    DeadLetter.objects.redrive([dead.pk])

    assert row_of(dead)["interruptions"] == 0


@pytest.mark.rule("10.7")
def test_interruption_is_fenced_in_both_directions(clock, queue):
    enqueue_many("jobs", [1, 2])
    message, lost = Message.objects.claim("jobs", limit=2)

    assert interrupt_one(message) == {message.pk}

    with pytest.raises(LockLost):
        message.complete()
    clock.advance(queue.lock_duration)
    before = row_of(lost)
    assert interrupt_one(lost) == set()
    assert row_of(lost) == before
