"""10.1 to 10.4 Expired leases; tests/crash has real processes."""

import pytest

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import claim_ids, claim_one, enqueue_and_claim, reap, state_of

pytestmark = pytest.mark.django_db


@pytest.mark.rule("10.1")
@pytest.mark.parametrize("how", ["abandon", "expire"])
def test_expired_lease_follows_the_rule_of_abandon(clock, make_queue, how):
    make_queue("jobs", max_delivery_count=3)
    enqueue("jobs", None)
    states = []

    for _ in range(3):
        message = claim_one("jobs")
        if how == "abandon":
            message.abandon(delay=0)
        else:
            clock.advance(30)
            reap()
        states.append(state_of(message))

    assert states == ["active", "active", "dead_lettered"]
    dead = DeadLetter.objects.get()
    assert (dead.delivery_count, dead.dead_letter_reason) == (3, "MaxDeliveryCountExceeded")


@pytest.mark.rule("10.1")
@pytest.mark.rule("10.2")
def test_crash_does_not_allow_an_extra_delivery(clock, make_queue):
    make_queue("jobs", max_delivery_count=5)
    enqueue("jobs", None)
    deliveries = 0

    while claim_ids("jobs"):  # and its worker dies
        deliveries += 1
        clock.advance(30)
        reap()

    assert deliveries == 5
    assert DeadLetter.objects.count() == 1


@pytest.mark.rule("10.3")
def test_second_reaper_changes_nothing(clock, queue):
    for _ in range(3):
        enqueue("jobs", None)
    claim_ids("jobs")
    clock.advance(30)
    assert len(reap()) == 3
    before = list(Message.objects.order_by("pk").values())

    assert reap() == []

    assert list(Message.objects.order_by("pk").values()) == before


@pytest.mark.rule("10.3")
def test_reaper_with_a_slow_clock_keeps_a_new_lease(clock, queue):
    enqueue_and_claim("jobs")
    clock.advance(30)
    reap()
    again = claim_one("jobs")

    clock.advance(-60)
    assert reap() == []

    clock.advance(60)
    again.complete()


@pytest.mark.rule("10.4")
def test_live_lease_is_not_released(clock, queue):
    expired = enqueue_and_claim("jobs")
    clock.advance(15)
    live = enqueue_and_claim("jobs")
    clock.advance(14.999)
    queue.pause()
    assert reap() == []
    clock.advance(0.001)

    (released,) = reap()

    assert (released.queue, released.id, released.state) == ("jobs", expired.pk, "active")
    live.complete()
    queue.resume()
    assert claim_one("jobs").delivery_count == 2
