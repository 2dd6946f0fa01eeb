"""8.3 Time to live."""

from datetime import timedelta

import pytest

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.verbs import sweeps
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    enqueue_and_claim,
    reap,
    row_of,
    state_of,
)

pytestmark = [pytest.mark.django_db, pytest.mark.rule("8.3")]


def expire(limit=100):
    return sweeps.expire("default", limit=limit)


@pytest.mark.parametrize(
    ("default_ttl", "ttl", "lives"),
    [(0, None, None), (0, 60, 60), (60, None, 60), (60, 30, 30), (60, 90, 60)],
)
@pytest.mark.parametrize("delay", [0, 100])
def test_ttl_counts_from_visible_at_and_is_limited_by_the_queue(
    clock, make_queue, default_ttl, ttl, lives, delay
):
    make_queue("jobs", default_ttl=default_ttl)

    message = enqueue("jobs", None, ttl=ttl, delay=delay)

    assert message.visible_at == clock.now + timedelta(seconds=delay)
    expected = None if lives is None else message.visible_at + timedelta(seconds=lives)
    assert (message.expires_at, row_of(message)["expires_at"]) == (expected, expected)


def active():
    return enqueue("jobs", "x", ttl=60)


def deferred():
    message = enqueue_and_claim("jobs", "x", ttl=60)
    message.defer()
    return message


def backing_off():
    message = enqueue_and_claim("jobs", "x", ttl=60)
    message.abandon(delay=3_600)
    return message


def behind_a_head():
    enqueue("jobs", "head", group_id="g")
    return enqueue("jobs", "x", group_id="g", ttl=60)


STATES = [active, deferred, backing_off, behind_a_head]


@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("dead_letters", [True, False])
def test_expired_message_becomes_a_dead_letter_or_is_deleted(clock, make_queue, make, dead_letters):
    make_queue("jobs", dead_letter_on_expire=dead_letters)
    message = make()
    clock.advance(59.999)
    assert expire() == 0

    clock.advance(0.001)
    assert expire() == 1

    assert expire() == 0
    if not dead_letters:
        assert state_of(message) == "gone"
        return
    dead = DeadLetter.objects.get()
    assert (dead.pk, dead.data, dead.dead_letter_reason) == (message.pk, "x", "TTLExpired")
    assert dead.finished_at == clock.now


def test_scheduled_message_expires_after_its_delivery_time(clock, queue):
    message = enqueue("jobs", None, delay=60, ttl=60)

    clock.advance(119.999)
    assert expire() == 0
    assert state_of(message) == "scheduled"

    clock.advance(0.001)
    assert expire() == 1


def test_expired_message_is_not_delivered_swept_or_not(clock, queue):
    enqueue("jobs", None, ttl=60)
    clock.advance(59.999)
    assert Message.objects.claimable() == {"jobs"}

    clock.advance(0.001)

    assert Message.objects.claimable() == set()
    assert claim_ids("jobs") == []
    assert Message.objects.claim_and_delete("jobs") == []


@pytest.mark.parametrize("ending", ["complete", "renew and complete", "abandon", "run out"])
def test_expired_message_keeps_its_live_lease(clock, queue, ending):
    message = enqueue_and_claim("jobs", ttl=10)
    clock.advance(20)
    assert expire() == 0

    match ending:
        case "complete":
            message.complete()
        case "renew and complete":
            message.renew()
            clock.advance(20)
            assert expire() == 0
            message.complete()
        case "abandon":
            message.abandon(delay=0)
        case "run out":
            clock.advance(10)
            reap()

    if ending.endswith("complete"):
        assert state_of(message) == "gone"
    else:
        assert claim_ids("jobs") == []
        assert expire() == 1
        assert DeadLetter.objects.get().dead_letter_reason == "TTLExpired"


def test_finished_message_does_not_expire(clock, make_queue):
    make_queue("jobs", default_ttl=10, retain_completed=3_600)
    completed, dead = enqueue_and_claim("jobs"), enqueue_and_claim("jobs")
    completed.complete()
    dead.reject("Broken")
    before = [row_of(completed), row_of(dead)]
    clock.advance(60)

    assert expire() == 0

    assert [row_of(completed), row_of(dead)] == before


def test_new_default_ttl_applies_to_new_messages(clock, queue):
    old = enqueue("jobs", "old")
    Queue.objects.configure("jobs", default_ttl=10)
    new = enqueue("jobs", "new")
    clock.advance(10)
    activate()

    assert expire() == 1

    assert (state_of(old), state_of(new)) == ("active", "dead_lettered")
    assert claim_one("jobs").data == "old"
