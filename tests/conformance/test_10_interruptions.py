"""10.7 Deliveries that end because their worker has to stop."""

import pytest

from django_mqlite import LockLost, enqueue, signals
from django_mqlite.models import DeadLetter
from django_mqlite.store.sqlite.leases import MAX_UNCOUNTED_INTERRUPTIONS
from django_mqlite.verbs.sweeps import interrupt
from tests.support.verbs import claim_one, row_of, state_of

pytestmark = pytest.mark.django_db

REASON = "the worker was stopped"


def interrupt_one(message) -> set[int]:
    return interrupt("default", [message.lease], reason=REASON)


@pytest.mark.rule("10.7")
def test_an_interrupted_delivery_is_not_counted_and_recorded(clock, make_queue):
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
def test_after_ten_interruptions_each_counts_as_a_delivery(clock, make_queue, bound):
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
def test_a_failed_delivery_stays_counted_beside_an_interrupted_one(clock, make_queue):
    make_queue("jobs", max_delivery_count=2, backoff_base=0)
    enqueue("jobs", None)
    claim_one("jobs").abandon(error="broken")
    interrupt_one(claim_one("jobs"))

    claim_one("jobs").abandon(error="broken")

    assert DeadLetter.objects.get().delivery_count == 2


def test_the_signal_and_the_log_say_which_delivery_was_interrupted(
    clock, queue, caplog, django_capture_on_commit_callbacks
):
    heard = []

    def hear(**facts):
        heard.append((facts["delivery_count"], facts["error"]))

    enqueue("jobs", None)
    message = claim_one("jobs")

    with django_capture_on_commit_callbacks(execute=True):
        signals.message_abandoned.connect(hear)
        interrupt_one(message)
    signals.message_abandoned.disconnect(hear)

    assert heard == [(1, f"delivery 1: interrupted: {REASON}")]
    assert "failed" not in caplog.text


@pytest.mark.rule("10.7")
def test_an_interruption_is_fenced_by_the_whole_lease(clock, queue):
    enqueue("jobs", None)
    lost = claim_one("jobs")
    clock.advance(queue.lock_duration)
    before = row_of(lost)

    assert interrupt_one(lost) == set()

    assert row_of(lost) == before


@pytest.mark.rule("10.7")
def test_the_handler_of_an_interrupted_delivery_cannot_settle_any_more(clock, queue):
    enqueue("jobs", None)
    message = claim_one("jobs")
    interrupt_one(message)

    with pytest.raises(LockLost):
        message.complete()


@pytest.mark.rule("10.7")
def test_a_redrive_starts_with_no_interruptions(clock, queue):
    enqueue("jobs", None)
    interrupt_one(claim_one("jobs"))
    claim_one("jobs").reject("Broken")
    dead = DeadLetter.objects.get()

    DeadLetter.objects.redrive([dead.pk])

    assert row_of(dead)["interruptions"] == 0
