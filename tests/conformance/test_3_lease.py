"""3.6 Only the instance that a claim returned holds the lease."""

import pytest

from django_mqlite import LockLost
from django_mqlite.models import Message
from tests.support.verbs import claim_one, enqueue_and_claim, reap, state_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("3.6")]


def test_instance_that_was_read_holds_no_lease(queue, clock):
    message = enqueue_and_claim(queue)

    read = Message.objects.get(pk=message.pk)

    assert read.lease is None
    with pytest.raises(LockLost):
        read.complete()


def test_refreshed_instance_does_not_get_the_next_lease(queue, clock):
    lost = enqueue_and_claim(queue)
    clock.advance(queue.lock_duration)
    reap()
    held = claim_one(queue.name)

    lost.refresh_from_db()

    with pytest.raises(LockLost):
        lost.complete()
    assert state_of(held) == "locked"
    held.complete()
