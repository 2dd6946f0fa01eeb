"""4.5 A claim with an attempt_id can be repeated."""

from datetime import timedelta

import pytest

from django_mqlite import enqueue, enqueue_many
from django_mqlite.models import Message, ReceiveAttempt
from django_mqlite.verbs import sweeps
from tests.support.verbs import claim_one, reap, row_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("4.5")]

LIFE = timedelta(minutes=30)


def attempt(name, limit=2, queue="jobs", **options):
    return Message.objects.claim(queue, limit=limit, attempt_id=name, **options)


def leases(messages):
    return [message.lease for message in messages]


@pytest.fixture
def long_queue(clock, make_queue):
    """A queue whose leases last longer than the record of an attempt."""
    return make_queue("jobs", lock_duration=7_200)


def test_repeated_attempt_returns_the_same_messages_and_tokens(clock, queue):
    enqueue_many("jobs", range(5))
    first = attempt("a")
    clock.advance(10)

    again = attempt("a", limit=9, lock_duration=3_600)

    assert leases(again) == leases(first)
    assert [row_of(m) for m in again] == [row_of(m) for m in first]
    assert [(m.data, m.delivery_count, m.locked_until) for m in again] == [
        (m.data, 1, m.locked_until) for m in first
    ]


def test_attempt_belongs_to_its_queue(clock, queue, make_queue):
    make_queue("other")
    here, there = enqueue("jobs", None), enqueue("other", None)

    for _ in range(2):
        assert [m.pk for m in attempt("a")] == [here.pk]
        assert [m.pk for m in attempt("a", queue="other")] == [there.pk]


def test_repeated_attempt_leaves_out_settled_messages(clock, queue):
    enqueue_many("jobs", range(5))
    first, second = attempt("a")
    first.complete()

    assert leases(attempt("a")) == [second.lease]

    second.abandon(delay=0)
    assert attempt("a") == []


def test_repeated_attempt_returns_the_renewed_deadline(clock, queue):
    enqueue("jobs", None)
    (message,) = attempt("a")
    clock.advance(20)
    message.renew()
    clock.advance(20)

    (again,) = attempt("a")

    assert (again.lease, again.locked_until) == (message.lease, message.locked_until)


@pytest.mark.parametrize("released", [False, True])
def test_repeated_attempt_leaves_out_expired_leases(clock, queue, released):
    enqueue("jobs", None)
    attempt("a")
    clock.advance(30)
    if released:
        reap()
        claim_one("jobs")

    assert attempt("a") == []


def test_empty_attempt_is_not_recorded(clock, queue):
    assert attempt("a") == []
    message = enqueue("jobs", None)

    assert [m.pk for m in attempt("a")] == [message.pk]


def test_attempt_is_recorded_for_thirty_minutes(clock, long_queue):
    enqueue_many("jobs", range(4))
    first = attempt("a")

    clock.advance(LIFE - timedelta(milliseconds=1))
    assert sweeps.prune_records("default", limit=9) == 0
    assert leases(attempt("a")) == leases(first)

    clock.advance(0.001)
    assert [m.data for m in attempt("a")] == [2, 3]
    assert ReceiveAttempt.objects.count() == 1
    clock.advance(LIFE)
    assert sweeps.prune_records("default", limit=9) == 1
    assert not ReceiveAttempt.objects.exists()
