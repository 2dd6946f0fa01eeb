"""Each verb sends its signal once, after the commit."""

import pytest

from django_mqlite import LockLost, signals
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent():
    """The signals that were sent: name, sender and facts."""
    received, receivers = [], {}
    for name in ("message_completed", "message_abandoned", "message_dead_lettered",
                 "messages_redriven", "messages_purged"):  # fmt: skip

        def receive(sender, name=name, signal=None, **facts):
            received.append((name, sender, facts))

        receivers[getattr(signals, name)] = receive
        getattr(signals, name).connect(receive)
    yield received
    for signal, receive in receivers.items():
        signal.disconnect(receive)


def claimed_at_the_limit(queue):
    return enqueue_and_claim(queue, max_delivery_count=1)


def three_dead(queue):
    return [dead_letter(queue).pk for _ in range(3)]


def release(message):
    assert Message.objects.release(message.pk, seen=message.lease_fingerprint)


CASES = {
    "complete": (enqueue_and_claim, lambda m: m.complete(), "message_completed", {}),
    "abandon": (
        enqueue_and_claim,
        lambda m: m.abandon(delay=5, error=ValueError("x")),
        "message_abandoned",
        {"error": "ValueError: x"},
    ),
    "reject": (
        enqueue_and_claim,
        lambda m: m.reject("R", "because"),
        "message_dead_lettered",
        {"reason": "R", "description": "because"},
    ),
    "release": (enqueue_and_claim, release, "message_abandoned", {}),
    "release at the limit": (claimed_at_the_limit, release, "message_dead_lettered", {}),
    "redrive": (three_dead, DeadLetter.objects.redrive, "messages_redriven", {"count": 3}),
    "purge": (three_dead, DeadLetter.objects.purge, "messages_purged", {"count": 3}),
}


@pytest.mark.parametrize("case", CASES)
def test_verb_sends_its_signal_once_after_the_commit(
    queue, django_capture_on_commit_callbacks, sent, case
):
    arrange, act, name, facts = CASES[case]
    with django_capture_on_commit_callbacks():
        target = arrange("jobs")

    with django_capture_on_commit_callbacks(execute=True):
        act(target)
        assert sent == []

    ((sent_name, sender, sent_facts),) = sent
    expected = {"using": "default", "message_id": None, **facts}
    if isinstance(target, Message):
        expected |= {"queue": "jobs", "id": target.pk, "delivery_count": 1}
    assert (sent_name, "queue" in sent_facts) == (name, True)
    assert sender is (Message if isinstance(target, Message) else DeadLetter)
    assert {fact: sent_facts[fact] for fact in expected} == expected


def test_lost_lease_sends_no_signal(clock, queue, sent, django_capture_on_commit_callbacks):
    message = enqueue_and_claim("jobs")
    clock.advance(30)

    with django_capture_on_commit_callbacks(execute=True), pytest.raises(LockLost):
        message.complete()

    assert sent == []
