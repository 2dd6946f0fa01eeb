"""3.11 Settling by the lease alone."""

import pytest

from django_mqlite import enqueue, signals
from django_mqlite.models import Message
from django_mqlite.types import Abandonment, Completion, Deferral, Lease, Rejection
from tests.support.verbs import claim_one, enqueue_and_claim, state_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.11")]

OUTCOMES = [
    (Completion(), "gone"),
    (Abandonment(delay_ms=0), "active"),
    (Abandonment(delay_ms=5_000), "scheduled"),
    (Rejection(reason="Bad", description="worse"), "dead_lettered"),
    (Deferral(), "deferred"),
]


def settle(lease, outcome):
    (held,) = Message.objects.settle_leases([lease], outcome)
    return held


@pytest.mark.parametrize(("outcome", "state"), OUTCOMES, ids=str)
def test_lease_alone_settles_like_the_message(clock, queue, outcome, state):
    message = enqueue_and_claim("jobs")

    assert settle(message.lease, outcome)

    assert state_of(message) == state


@pytest.mark.parametrize(("outcome", "state"), OUTCOMES, ids=str)
def test_repeated_settle_of_a_lease_changes_nothing(clock, queue, outcome, state):
    lease = enqueue_and_claim("jobs").lease
    settle(lease, outcome)
    before = list(Message.objects.values())

    assert settle(lease, outcome)

    assert list(Message.objects.values()) == before


@pytest.mark.parametrize(("outcome", "state"), OUTCOMES, ids=str)
def test_lease_that_has_ended_settles_nothing(clock, queue, outcome, state):
    message = enqueue_and_claim("jobs")
    lease = message.lease
    others = [
        Lease(queue="other", id=lease.id, lock_token=lease.lock_token),
        Lease(queue="jobs", id=lease.id, lock_token=""),
        Lease(queue="jobs", id=lease.id + 1, lock_token=lease.lock_token),
    ]
    before = list(Message.objects.values())

    assert Message.objects.settle_leases(others, outcome) == [False, False, False]
    clock.advance(30)
    assert not settle(lease, outcome)

    assert list(Message.objects.values()) == before


@pytest.mark.parametrize(("outcome", "state"), OUTCOMES[1:4:2], ids=str)
def test_settled_lease_lets_the_next_of_its_group_pass(clock, group_queue, outcome, state):
    first = enqueue_and_claim("groups", group_id="g")
    second = enqueue("groups", None, group_id="g")

    settle(first.lease, outcome)

    expected = first.pk if state == "active" else second.pk
    assert claim_one("groups").pk == expected


@pytest.mark.parametrize(
    ("outcome", "signal"),
    [
        (Completion(), signals.message_completed),
        (Abandonment(delay_ms=0), signals.message_abandoned),
        (Rejection(reason="Bad"), signals.message_dead_lettered),
        (Deferral(), signals.message_deferred),
    ],
    ids=["completed", "abandoned", "dead-lettered", "deferred"],
)
def test_signal_of_a_lease_has_the_facts_of_its_message(clock, queue, outcome, signal):
    received = []

    def receive(sender, signal, **facts):
        received.append((sender, facts))

    signal.connect(receive)
    try:
        enqueue("jobs", None, message_id="m-1", subject="s")
        lease = claim_one("jobs", worker="client").lease
        settle(lease, outcome)
        settle(lease, outcome)
    finally:
        signal.disconnect(receive)

    ((sender, facts),) = received
    assert sender is Message
    assert (facts["queue"], facts["id"], facts["message_id"]) == ("jobs", lease.id, "m-1")
    assert (facts["subject"], facts["worker"], facts["delivery_count"]) == ("s", "client", 1)
    assert facts["using"] == "default"


def test_many_leases_are_settled_in_one_transaction(clock, queue):
    for _ in range(3):
        enqueue("jobs", None)
    first, second, third = (m.lease for m in Message.objects.claim("jobs", limit=3))
    settle(third, Completion())
    unknown = Lease(queue="jobs", id=10**9, lock_token="x")

    held = Message.objects.settle_leases([second, unknown, first, third, second], Completion())

    assert held == [True, False, True, True, True]
    assert not Message.objects.exists()
