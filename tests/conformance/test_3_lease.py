"""3 The lease is the claim's, and nobody else's."""

import pytest

from django_mqlite import LockLost
from django_mqlite.models import Message
from tests.support.verbs import claim_one, enqueue_and_claim, reap, state_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("3.6")]


def test_an_instance_that_was_only_read_holds_no_lease(queue, clock):
    message = enqueue_and_claim(queue)

    read = Message.objects.get(pk=message.pk)

    assert read.lease is None
    with pytest.raises(LockLost):
        read.complete()


def test_refreshing_an_instance_whose_lease_was_lost_does_not_hand_it_the_next_ones(queue, clock):
    lost = enqueue_and_claim(queue)
    clock.advance(queue.lock_duration)
    reap()
    held = claim_one(queue.name)

    lost.refresh_from_db()

    with pytest.raises(LockLost):
        lost.complete()
    assert state_of(held) == "locked"
    held.complete()
