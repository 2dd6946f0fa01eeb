"""6 Ordering."""

import pytest

from django_mqlite import GroupRequired, PriorityRefused, enqueue
from django_mqlite.models import Message
from tests.support.verbs import activate, claim_ids, claim_one, reap

pytestmark = pytest.mark.django_db


def drain(queue):
    """Everything a claimer is given, completing as it goes; in batches."""
    given = []
    while batch := Message.objects.claim(str(queue), limit=10):
        given.append([message.pk for message in batch])
        for message in batch:
            message.complete()
    return given


@pytest.mark.rule("6.1")
def test_in_a_standard_queue_groups_are_fifo_and_parallel_and_the_rest_goes_at_will(clock, queue):
    a1, loose, b1, a2, b2 = (
        enqueue("jobs", None, group_id=group).pk for group in ("a", None, "b", "a", "b")
    )

    assert drain("jobs") == [[a1, loose, b1], [a2, b2]]


@pytest.mark.rule("6.2")
def test_a_group_fifo_queue_orders_alike_and_requires_a_group(clock, group_queue):
    a1, b1, a2 = (enqueue("groups", None, group_id=group).pk for group in ("a", "b", "a"))

    with pytest.raises(GroupRequired):
        enqueue("groups", None)

    assert drain("groups") == [[a1, b1], [a2]]


@pytest.mark.rule("6.3")
def test_a_strict_queue_has_one_message_in_flight(clock, strict_queue):
    ids = [enqueue("strict", None, group_id=group).pk for group in ("a", "b", None)]

    assert drain("strict") == [[id] for id in ids]


@pytest.mark.rule("6.4")
@pytest.mark.parametrize("ahead", ["locked", "deferred", "scheduled"])
@pytest.mark.parametrize("mode", ["standard", "group_fifo", "strict_fifo"])
def test_a_message_is_claimable_only_behind_nobody_at_work_or_waiting(
    clock, make_queue, mode, ahead
):
    make_queue("jobs", ordering_mode=mode)
    first = enqueue("jobs", None, group_id="g", delay=60 if ahead == "scheduled" else 0)
    if ahead != "scheduled":
        claimed = claim_one("jobs")
        if ahead == "deferred":
            claimed.defer()
    second = enqueue("jobs", None, group_id="g")
    assert Message.objects.get(pk=first.pk).state == ahead

    assert claim_ids("jobs") == []

    Message.objects.filter(pk=first.pk).delete()
    assert claim_ids("jobs") == [second.pk]


@pytest.mark.rule("6.5")
def test_an_expired_lease_not_yet_released_still_blocks(clock, group_queue):
    first, _ = (enqueue("groups", None, group_id="g").pk for _ in range(2))
    claim_one("groups")
    clock.advance(86_400)

    assert claim_ids("groups") == []

    reap()
    assert claim_ids("groups") == [first]


@pytest.mark.rule("6.5")
def test_a_backing_off_head_blocks_and_goes_first_again(clock, group_queue):
    ids = [enqueue("groups", None, group_id="g").pk for _ in range(3)]
    head = claim_one("groups")
    head.abandon(delay=5)

    assert claim_ids("groups") == []

    clock.advance(5)
    activate()
    assert [head.pk, *(id for batch in drain("groups") for id in batch)] == [ids[0], *ids]


@pytest.mark.rule("6.6")
@pytest.mark.parametrize("mode", ["standard", "group_fifo", "strict_fifo"])
def test_a_dead_lettered_head_unblocks(clock, make_queue, mode):
    make_queue("jobs", ordering_mode=mode)
    _, second = (enqueue("jobs", None, group_id="g").pk for _ in range(2))

    claim_one("jobs").reject("Broken")

    assert claim_ids("jobs") == [second]


@pytest.mark.rule("6.7")
@pytest.mark.parametrize("priority", [1, -1])
def test_priority_with_a_group_or_on_a_strict_queue_is_refused(
    clock, queue, strict_queue, priority
):
    with pytest.raises(PriorityRefused):
        enqueue("jobs", None, priority=priority, group_id="g")
    with pytest.raises(PriorityRefused):
        enqueue("strict", None, priority=priority)

    assert not Message.objects.exists()
