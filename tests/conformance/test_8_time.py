"""8 Time."""

import pytest

from django_mqlite import LockLost, enqueue
from django_mqlite.models import Message
from tests.support.verbs import activate, claim_ids, claim_one, enqueue_and_claim, reap, state_of

pytestmark = pytest.mark.django_db


@pytest.mark.rule("8.1")
def test_a_scheduled_message_becomes_active_when_due_and_not_before(clock, queue):
    message = enqueue("jobs", None, delay=10)

    clock.advance(9.999)
    activate()
    assert claim_ids("jobs") == []

    clock.advance(0.001)
    activate()
    assert claim_ids("jobs") == [message.pk]


@pytest.mark.rule("8.4")
def test_the_injected_clock_is_the_only_one(clock, make_queue):
    clock.ms = 1_000  # the second after the epoch: no other clock could tell it
    make_queue("jobs", retain_completed=60)
    message = enqueue("jobs", None, delay=5, ttl=60)
    clock.advance(5)
    activate()
    claimed = claim_one("jobs")
    clock.advance(1)
    claimed.renew()
    claimed.abandon(delay=2, error="x")
    clock.advance(2)
    activate()
    claim_one("jobs").complete()

    row = Message.objects.filter(pk=message.pk).values().get()
    times = {
        name: value.timestamp()
        for name, value in row.items()
        if name.endswith(("_at", "_until")) and value
    }
    assert times == {
        "enqueued_at": 1,
        "visible_at": 9,
        "expires_at": 66,
        "locked_at": 9,
        "finished_at": 9,
        "kept_until": 69,
    }
    assert row["errors"][0]["failed_at"] == 7_000


@pytest.mark.rule("8.5")
@pytest.mark.parametrize("step", [3_600, -3_600, 10**9, -(10**9)])
def test_a_clock_step_loses_no_message_and_costs_at_most_a_fenced_redelivery(clock, queue, step):
    at_work = enqueue_and_claim("jobs", "at work")
    waiting = enqueue("jobs", "waiting")
    scheduled = enqueue("jobs", "scheduled", delay=60)

    clock.advance(step)
    reap()
    activate()

    states = [state_of(message) for message in (at_work, waiting, scheduled)]
    if step > 0:
        assert states == ["active", "active", "active"]
        again = claim_one("jobs")
        assert (again.pk, again.delivery_count) == (at_work.pk, 2)
        with pytest.raises(LockLost):
            at_work.complete()
        again.complete()
    else:
        assert states == ["locked", "active", "scheduled"]
        at_work.complete()

    clock.advance(10**9 + 3_660)
    activate()
    assert set(claim_ids("jobs")) == {waiting.pk, scheduled.pk}
