"""18 Retries that do not use up a delivery: `raise Retry(delay=…, counts=False)`."""

import math

import pytest

from django_mqlite import LockLost, Retry, handlers
from django_mqlite.models import DeadLetter, Message
from django_mqlite.store.sqlite.settle import MAX_UNCOUNTED_RETRIES
from django_mqlite.testing import TooManyDeliveries, drain
from django_mqlite.types import Abandonment
from tests.support import steps
from tests.support.steps import FLAVOURS, enqueue_flavour, run_worker
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    enqueue_and_claim,
    overwrite,
    row_of,
    state_of,
)

pytestmark = pytest.mark.django_db

TRANSACTIONAL = pytest.mark.django_db(transaction=True)
DELAY = 60


def snooze(message, error="closed for maintenance", delay=DELAY):
    outcome = Abandonment(delay_ms=delay * 1_000, counts=False)
    return Message.objects.settle(message, outcome, error=error)


def retried(message):
    """Return the same message, claimed again after the delay."""
    activate()
    (again,) = Message.objects.claim(message.queue)
    assert again.pk == message.pk
    return again


@pytest.fixture
def one_delivery(clock, make_queue):
    return make_queue("jobs", max_delivery_count=1)


@pytest.mark.rule("18.1")
def test_uncounted_retry_uses_up_no_delivery(clock, one_delivery):
    message = enqueue_and_claim("jobs")

    assert snooze(message)

    row = row_of(message)
    assert (row["state"], row["delivery_count"], row["uncounted_retries"]) == ("scheduled", 0, 1)
    assert (row["visible_at"] - clock.now).total_seconds() == DELAY
    assert (row["lock_token"], row["errors"]) == (None, [])
    clock.advance(DELAY)
    assert retried(message).delivery_count == 1


@pytest.mark.rule("18.1")
def test_failure_after_an_uncounted_retry_counts(clock, one_delivery):
    message = enqueue_and_claim("jobs")
    snooze(message)
    clock.advance(DELAY)

    retried(message).abandon(error="broken")

    row = row_of(message)
    assert (row["state"], row["delivery_count"]) == ("dead_lettered", 1)
    assert [error["message"] for error in row["errors"]] == ["broken"]


@pytest.mark.rule("18.1")
def test_uncounted_retry_keeps_earlier_failures(clock, queue):
    message = enqueue_and_claim("jobs")
    message.abandon(delay=0, error="first")
    again = claim_one("jobs")

    snooze(again)

    row = row_of(message)
    assert (row["delivery_count"], row["uncounted_retries"]) == (1, 1)
    assert [error["message"] for error in row["errors"]] == ["first"]


@pytest.mark.rule("18.1")
def test_message_that_was_put_off_cannot_be_cancelled(clock, queue):
    message = enqueue_and_claim("jobs")
    snooze(message)

    assert message.cancel() is False

    assert state_of(message) == "scheduled"
    assert message.explain().code == "snoozed"


@pytest.mark.rule("18.1")
def test_line_waits_for_its_head_that_was_put_off(clock, queue):
    head = enqueue_and_claim("jobs", group_id="g")
    Message.objects.enqueue("jobs", None, group_id="g")

    snooze(head)

    assert claim_ids("jobs") == []
    clock.advance(DELAY)
    activate()
    assert claim_ids("jobs") == [head.pk]


@pytest.mark.rule("18.2")
def test_uncounted_retry_is_fenced_and_can_be_repeated(clock, queue):
    message = enqueue_and_claim("jobs")
    assert snooze(message)
    before = row_of(message)

    assert snooze(message)
    assert not snooze(message, delay=2 * DELAY)
    with pytest.raises(LockLost):
        message.complete()

    assert row_of(message) == before


@pytest.mark.rule("18.2")
def test_expired_lease_cannot_be_put_off(clock, queue):
    message = enqueue_and_claim("jobs")
    clock.advance(queue.lock_duration)
    before = row_of(message)

    assert not snooze(message)

    assert row_of(message) == before


def put_off_before(message, times):
    overwrite(Message.objects.filter(pk=message.pk), uncounted_retries=times)


@pytest.mark.rule("18.3")
def test_after_a_thousand_retries_each_counts(clock, one_delivery):
    message = enqueue_and_claim("jobs")
    put_off_before(message, MAX_UNCOUNTED_RETRIES - 1)
    snooze(message)
    clock.advance(DELAY)

    snooze(retried(message))

    assert MAX_UNCOUNTED_RETRIES == 1_000
    row = row_of(message)
    assert (row["state"], row["dead_letter_reason"]) == (
        "dead_lettered", "MaxDeliveryCountExceeded",
    )  # fmt: skip
    assert (row["delivery_count"], row["uncounted_retries"]) == (1, MAX_UNCOUNTED_RETRIES)
    assert row["errors"][0]["message"] == "closed for maintenance"


@pytest.mark.rule("18.3")
def test_counted_retry_after_the_limit_keeps_its_delay(clock, queue):
    message = enqueue_and_claim("jobs")
    put_off_before(message, MAX_UNCOUNTED_RETRIES)

    snooze(message)

    row = row_of(message)
    assert (row["state"], row["delivery_count"]) == ("scheduled", 1)
    assert (row["visible_at"] - clock.now).total_seconds() == DELAY


@pytest.mark.rule("18.3")
def test_time_to_live_limits_the_retries_instead(clock, one_delivery):
    message = enqueue_and_claim("jobs", ttl=3 * DELAY)
    put_off_before(message, MAX_UNCOUNTED_RETRIES)
    expires_at = row_of(message)["expires_at"]

    for _ in range(2):
        snooze(message)
        clock.advance(DELAY)
        message = retried(message)
    snooze(message)
    clock.advance(DELAY)

    assert row_of(message)["expires_at"] == expires_at
    drain("jobs")
    assert row_of(message)["dead_letter_reason"] == "TTLExpired"


@pytest.mark.rule("18.3")
def test_redrive_starts_with_no_uncounted_retries(clock, queue):
    message = enqueue_and_claim("jobs")
    snooze(message)
    Message.objects.discard(message.pk)

    DeadLetter.objects.redrive([message.pk])

    assert row_of(message)["uncounted_retries"] == 0


def maintenance_until(number):
    """Return steps that put the delivery off until they have run `number` times."""
    runs = []

    def step():
        runs.append(number)
        if len(runs) < number:
            raise Retry("closed for maintenance", delay=DELAY, counts=False)

    return step


@pytest.mark.rule("18.4")
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    "transactional",
    [pytest.param(True, marks=TRANSACTIONAL), False],
    ids=["autocommit", "TestCase"],
)
def test_handler_of_every_flavour_can_put_off_its_delivery(
    clock, make_queue, monkeypatch, flavour, transactional
):
    make_queue("default", max_delivery_count=1, retain_completed=3_600)
    monkeypatch.setattr(handlers, "_handlers", {})
    monkeypatch.setattr(steps, "steps", maintenance_until(3))
    enqueue_flavour(flavour)

    states = [message.state for message in drain("default")]

    assert states == ["scheduled", "scheduled", "completed"]
    (row,) = Message.objects.values("delivery_count", "uncounted_retries")
    assert row == {"delivery_count": 1, "uncounted_retries": 2}


@pytest.mark.rule("18.4")
@TRANSACTIONAL
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_worker_puts_off_the_delivery_of_every_flavour(clock, make_queue, monkeypatch, flavour):
    make_queue("default", max_delivery_count=1)
    monkeypatch.setattr(handlers, "_handlers", {})
    monkeypatch.setattr(steps, "steps", maintenance_until(2))
    enqueue_flavour(flavour)

    assert run_worker().code == 0

    (row,) = Message.objects.values("state", "delivery_count", "uncounted_retries")
    assert row == {"state": "scheduled", "delivery_count": 0, "uncounted_retries": 1}


@pytest.mark.rule("18.4")
def test_handler_that_never_starts_is_stopped_by_the_limit_of_drain(clock, make_queue, monkeypatch):
    make_queue("default")
    monkeypatch.setattr(handlers, "_handlers", {})
    monkeypatch.setattr(steps, "steps", maintenance_until(math.inf))
    enqueue_flavour("plain")

    with pytest.raises(TooManyDeliveries):
        drain("default", limit=20)


@pytest.mark.rule("18.4")
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"counts": False}, ValueError),
        ({"counts": False, "delay": 0}, ValueError),
        ({"counts": None, "delay": 1}, TypeError),
        ({"counts": 0, "delay": 1}, TypeError),
    ],
)
def test_invalid_uncounted_retry_is_refused(options, error):
    with pytest.raises(error, match="counts"):
        Retry("closed", **options)


@pytest.mark.rule("18.4")
@pytest.mark.parametrize("delay", [-1, math.nan, "soon"])
def test_uncounted_retry_with_an_invalid_delay_counts(clock, queue, monkeypatch, delay):
    def fail():
        raise Retry("closed", delay=delay, counts=False)

    monkeypatch.setattr(handlers, "_handlers", {})
    monkeypatch.setattr(steps, "steps", fail)
    monkeypatch.setattr(steps, "QUEUE", "jobs")
    enqueue_flavour("plain")

    drain("jobs", retries=False)

    (row,) = Message.objects.values("delivery_count", "uncounted_retries")
    assert row == {"delivery_count": 1, "uncounted_retries": 0}
