"""A person steps in: a lease is released, a schedule brought forward."""

import pytest

from django_mqlite import LockLost, signals
from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import fingerprint
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, reap, row_of, state_of

pytestmark = pytest.mark.django_db


def seen(message):
    """What somebody sees who looks at the message."""
    return Message.objects.get(pk=message.pk).lease_fingerprint


def release(message, **options):
    return Message.objects.release(message.pk, seen=options.pop("seen", seen(message)), **options)


def test_a_released_message_is_claimable_and_its_holder_has_lost_it(queue):
    held = enqueue_and_claim("jobs")

    assert release(held) is True

    assert state_of(held) == "active"
    for settle in (held.complete, held.abandon, held.defer, held.renew):
        with pytest.raises(LockLost):
            settle()
    again = claim_one("jobs")
    assert (again.pk, again.delivery_count) == (held.pk, 2)


def test_the_release_is_remembered_among_the_failed_deliveries(queue, clock):
    held = enqueue_and_claim("jobs")
    clock.advance(5)

    release(held, reason="stuck since noon")

    (error,) = row_of(held)["errors"]
    assert error["class"] == "django_mqlite.exceptions.LeaseReleased"
    assert error["message"] == "stuck since noon"
    assert error["delivery"] == 1
    assert error["failed_at"] - error["started_at"] == 5_000


def test_at_its_bound_a_released_message_is_a_dead_letter(queue):
    held = enqueue_and_claim("jobs", max_delivery_count=1)

    release(held)

    letter = DeadLetter.objects.get(pk=held.pk)
    assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert letter.dead_letter_description == "the lease of delivery 1 was released manually"


def test_a_lease_that_was_not_seen_is_left_alone(queue, clock):
    first = enqueue_and_claim("jobs")
    before = seen(first)
    clock.advance(queue.lock_duration)
    reap()
    second = claim_one("jobs")

    assert release(first, seen=before) is False
    assert release(first, seen="") is False

    second.complete()


def test_doing_it_twice_releases_once(queue):
    held = enqueue_and_claim("jobs")
    before = seen(held)

    assert release(held, seen=before) is True
    assert release(held, seen=before) is False
    assert len(row_of(held)["errors"]) == 1


@pytest.mark.parametrize("make", [dead_letter, lambda queue: Message.objects.enqueue(queue, 1)])
def test_where_there_is_no_lease_there_is_nothing_to_release(queue, make):
    message = make("jobs")
    before = row_of(message)

    assert message.lease_fingerprint is None
    assert release(message, seen="x") is False
    assert Message.objects.release(10**9, seen="x") is False
    assert row_of(message) == before


def test_the_fingerprint_is_no_token(queue):
    held = enqueue_and_claim("jobs")

    assert held.lock_token not in seen(held)
    assert seen(held) == fingerprint(held.lock_token)


def test_a_released_head_stays_the_head_of_its_group(group_queue):
    head = enqueue_and_claim("groups", group_id="a")
    Message.objects.enqueue("groups", 2, group_id="a")

    release(head)

    assert claim_one("groups").pk == head.pk


@pytest.mark.parametrize(
    ("bound", "signal"),
    [(5, signals.message_abandoned), (1, signals.message_dead_lettered)],
    ids=["abandoned", "dead-lettered"],
)
def test_a_release_is_told_after_the_commit(
    queue, django_capture_on_commit_callbacks, bound, signal
):
    told = []
    held = enqueue_and_claim("jobs", max_delivery_count=bound)

    def receive(**facts):
        told.append((facts["queue"], facts["id"]))

    signal.connect(receive)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            release(held)
            assert told == []
    finally:
        signal.disconnect(receive)

    assert told == [("jobs", held.pk)]


def test_a_scheduled_message_runs_now(queue):
    message = Message.objects.enqueue("jobs", 1, delay=3_600)

    assert Message.objects.run_now(message.pk) is True
    assert Message.objects.run_now(message.pk) is False

    assert claim_one("jobs").pk == message.pk


def test_one_that_backs_off_runs_now_and_keeps_its_count(queue):
    message = enqueue_and_claim("jobs")
    message.abandon(delay=3_600)

    assert Message.objects.run_now(message.pk) is True

    assert claim_one("jobs").delivery_count == 2


def test_behind_a_head_it_still_waits(group_queue):
    enqueue_and_claim("groups", group_id="a")
    message = Message.objects.enqueue("groups", 2, group_id="a", delay=60)

    assert Message.objects.run_now(message.pk) is True

    assert Message.objects.claim("groups") == []
    assert message.explain().code == "behind_head"


def test_what_is_not_scheduled_is_not_hurried(queue):
    active = Message.objects.enqueue("jobs", 1)
    held = enqueue_and_claim("jobs", priority=1)
    dead = dead_letter("jobs", priority=2)
    before = [row_of(each) for each in (active, held, dead)]

    assert not any(Message.objects.run_now(each.pk) for each in (active, held, dead))
    assert Message.objects.run_now(10**9) is False
    assert [row_of(each) for each in (active, held, dead)] == before
