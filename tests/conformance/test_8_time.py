"""8.1, 8.4 and 8.5 Due times and the clock."""

from datetime import timedelta

import pytest

from django_mqlite import LockLost, enqueue
from django_mqlite.models import Message
from tests.support.verbs import activate, claim_ids, claim_one, enqueue_and_claim, reap, state_of

pytestmark = pytest.mark.django_db


@pytest.mark.rule("8.1")
def test_scheduled_message_becomes_active_when_it_is_due(clock, queue):
    message = enqueue("jobs", None, delay=10)

    clock.advance(9.999)
    activate()
    assert claim_ids("jobs") == []

    clock.advance(0.001)
    assert claim_ids("jobs") == []
    activate()
    assert claim_ids("jobs") == [message.pk]


MS = timedelta(milliseconds=1)


@pytest.mark.rule("8.1")
@pytest.mark.parametrize(
    ("delay", "visible_in", "state"),
    [
        (0, None, "active"),
        (timedelta(), None, "active"),
        (0.001, None, "scheduled"),
        (timedelta(days=365), None, "scheduled"),
        (None, timedelta(), "active"),
        (None, -MS, "active"),
        (None, timedelta(days=-9_999), "active"),
        (None, MS, "scheduled"),
        (None, timedelta(days=365 * 6_970), "scheduled"),
    ],
)
def test_message_is_scheduled_until_its_time(clock, queue, delay, visible_in, state):
    at = None if visible_in is None else clock.now + visible_in

    message = enqueue("jobs", None, delay=delay, visible_at=at, ttl=timedelta(days=36_500))

    seconds = timedelta(seconds=delay) if isinstance(delay, float | int) else delay
    assert (message.state, message.visible_at) == (state, at or clock.now + seconds)
    assert Message.objects.get(pk=message.pk).expires_at == message.expires_at


@pytest.mark.rule("8.4")
def test_every_time_is_read_from_the_clock_in_use(clock, make_queue):
    clock.ms = 1_000  # a second after the epoch, which no other clock returns
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
def test_clock_step_costs_at_most_a_fenced_redelivery(clock, queue, step):
    held = enqueue_and_claim("jobs", "at work")
    waiting = enqueue("jobs", "waiting")
    scheduled = enqueue("jobs", "scheduled", delay=60)

    clock.advance(step)
    reap()
    activate()

    states = [state_of(message) for message in (held, waiting, scheduled)]
    if step > 0:
        assert states == ["active", "active", "active"]
        again = claim_one("jobs")
        assert (again.pk, again.delivery_count) == (held.pk, 2)
        with pytest.raises(LockLost):
            held.complete()
        again.complete()
    else:
        assert states == ["locked", "active", "scheduled"]
        held.complete()

    clock.advance(10**9 + 3_660)
    activate()
    assert set(claim_ids("jobs")) == {waiting.pk, scheduled.pk}
