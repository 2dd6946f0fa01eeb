"""Leases that end without a settle: the error and the dead letter that SQL writes."""

import pytest

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message
from django_mqlite.verbs import sweeps
from tests.support.verbs import claim_one, reap

pytestmark = pytest.mark.django_db


def expire(message, clock):
    clock.advance(30)
    reap()


def release(message, clock):
    Message.objects.release(message.pk, seen=message.lease_fingerprint, reason="stuck")


def release_worker(message, clock):
    sweeps.release_worker("default", "host:1", reason="killed", limit=10)


def interrupt(message, clock):
    sweeps.interrupt("default", [message.lease], reason="stopped")


@pytest.mark.parametrize(
    ("end", "error", "text", "description"),
    [
        (expire, "LeaseExpired", "neither settled nor renewed", "the lease of delivery 1 expired"),
        (release, "LeaseReleased", "stuck", "the lease of delivery 1 was released manually"),
        (release_worker, "WorkerDied", "killed", "the worker of delivery 1 died"),
        (interrupt, "Interrupted", "stopped", None),
    ],
)
@pytest.mark.parametrize("limit", [1, 2])
def test_ended_lease_is_recorded_as_an_error(
    clock, make_queue, end, error, text, description, limit
):
    make_queue("jobs", max_delivery_count=limit)
    enqueue("jobs", None)
    started_at = clock.now_ms()
    message = claim_one("jobs", worker="host:1")
    clock.advance(5)

    end(message, clock)

    row = Message.objects.get(pk=message.pk)
    (entry,) = row.errors
    assert entry["class"] == f"django_mqlite.exceptions.{error}"
    assert text in entry["message"]
    assert (entry["delivery"], entry["worker"]) == (1, "host:1")
    assert (entry["started_at"], entry["failed_at"]) == (started_at, clock.now_ms())
    assert row.state == ("dead_lettered" if description and limit == 1 else "active")
    assert row.dead_letter_description == (description if limit == 1 else None)


@pytest.mark.parametrize("last", ["abandon", "reject", "expire"])
def test_last_twenty_errors_are_kept(clock, make_queue, last):
    make_queue("jobs", max_delivery_count=100)
    enqueue("jobs", None)
    for number in range(1, 25):
        message = claim_one("jobs")
        if last == "expire" and number > 12:
            expire(message, clock)
        else:
            message.abandon(delay=0, error=f"failure {number}")
    message = claim_one("jobs")

    if last == "abandon":
        message.abandon(delay=0, error="failure 25")
    elif last == "reject":
        message.reject("R", error="failure 25")
    else:
        expire(message, clock)

    errors = Message.objects.get(pk=message.pk).errors
    assert [entry["delivery"] for entry in errors] == list(range(6, 26))
    assert [entry["message"] for entry in errors[:7]] == [f"failure {n}" for n in range(6, 13)]


@pytest.mark.parametrize("end", [expire, release, release_worker])
def test_delivery_limit_of_a_message_overrides_the_limit_of_its_queue(clock, make_queue, end):
    make_queue("jobs", max_delivery_count=1)
    enqueue("jobs", None, max_delivery_count=2)

    for expected in (0, 1):
        end(claim_one("jobs", worker="host:1"), clock)
        assert DeadLetter.objects.count() == expected

    assert DeadLetter.objects.get().dead_letter_reason == "MaxDeliveryCountExceeded"
