"""6 Ordering."""

import pytest

from django_mqlite import Draft, GroupRequired, PriorityRefused, enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Message
from django_mqlite.verbs import sweeps
from tests.support.verbs import activate, claim_ids, claim_one, reap

pytestmark = pytest.mark.django_db

MODES = ["standard", "group_fifo", "strict_fifo"]


def drain(queue):
    """Complete everything that can be claimed; return the data, batch by batch."""
    batches = []
    while batch := Message.objects.claim(queue, limit=10):
        batches.append([message.data for message in batch])
        Message.objects.complete_many(batch)
    return batches


@pytest.fixture(params=MODES)
def line(clock, make_queue, request):
    """Enqueue three messages of a line, with the data 1, 2 and 3; return their ids."""
    make_queue("jobs", ordering_mode=request.param, max_delivery_count=3)
    return [m.pk for m in enqueue_many("jobs", [Draft(n, group_id="g") for n in (1, 2, 3)])]


@pytest.mark.rule("6.1")
def test_groups_of_a_standard_queue_are_fifo_and_parallel(clock, queue):
    for data, group in (("a1", "a"), ("-", None), ("b1", "b"), ("a2", "a"), ("b2", "b")):
        enqueue("jobs", data, group_id=group)

    assert drain("jobs") == [["a1", "-", "b1"], ["a2", "b2"]]


@pytest.mark.rule("6.1")
def test_blocked_message_is_passed_by_other_groups_and_ungrouped_messages(clock, queue):
    enqueue("jobs", "head", group_id="g")
    claim_one("jobs").abandon(delay=60)
    enqueue("jobs", "blocked", group_id="g")
    enqueue("jobs", "low")
    enqueue("jobs", "high", priority=1)
    enqueue("jobs", "other group", group_id="h")

    assert drain("jobs") == [["high", "low", "other group"]]


@pytest.mark.rule("6.2")
def test_group_fifo_queue_requires_a_group(clock, group_queue):
    for data, group in (("a1", "a"), ("b1", "b"), ("a2", "a")):
        enqueue("groups", data, group_id=group)

    with pytest.raises(GroupRequired) as caught:
        enqueue("groups", None)

    assert caught.value.queue == "groups"
    assert drain("groups") == [["a1", "b1"], ["a2"]]


@pytest.mark.rule("6.3")
def test_strict_queue_has_one_message_in_flight(clock, strict_queue):
    for number, group in enumerate(["a", "b", None, "a"]):
        enqueue("strict", number, group_id=group)

    assert drain("strict") == [[0], [1], [2], [3]]


@pytest.mark.rule("6.4")
@pytest.mark.parametrize("state", ["locked", "deferred", "scheduled"])
@pytest.mark.parametrize("mode", MODES)
def test_unfinished_head_blocks_its_line(clock, make_queue, mode, state):
    make_queue("jobs", ordering_mode=mode)
    first = enqueue("jobs", None, group_id="g", delay=60 if state == "scheduled" else 0)
    if state != "scheduled":
        claimed = claim_one("jobs")
        if state == "deferred":
            claimed.defer()
    second = enqueue("jobs", None, group_id="g")
    assert Message.objects.get(pk=first.pk).state == state

    assert claim_ids("jobs") == []

    Message.objects.filter(pk=first.pk).delete()
    assert claim_ids("jobs") == [second.pk]


@pytest.mark.rule("6.4")
def test_blocked_messages_are_not_claimable(clock, group_queue):
    """A worker would poll without end if `claimable` named a queue that a claim finds empty."""
    enqueue_many("groups", [Draft(n, group_id="g") for n in range(50)])
    claim_one("groups")

    assert Message.objects.claimable() == set()
    assert claim_ids("groups") == []


@pytest.mark.rule("6.5")
def test_head_that_fails_is_delivered_again_before_the_others(clock, line):
    head = claim_one("jobs")
    head.abandon(delay=5)

    clock.advance(4.999)
    activate()
    assert drain("jobs") == []

    clock.advance(0.001)
    activate()
    assert drain("jobs") == [[head.data], [2], [3]]


@pytest.mark.rule("6.5")
def test_expired_lease_blocks_its_line_until_it_is_released(clock, line):
    claim_one("jobs")
    clock.advance(3_600)

    assert drain("jobs") == []

    reap()
    assert drain("jobs") == [[1], [2], [3]]


def abandon(message, clock):
    message.abandon(delay=0)


def let_expire(message, clock):
    clock.advance(30)
    reap()


@pytest.mark.rule("6.6")
@pytest.mark.parametrize("fail", [abandon, let_expire])
def test_head_at_its_delivery_limit_unblocks_its_line(clock, line, fail):
    deliveries = []
    while not DeadLetter.objects.exists():
        message = claim_one("jobs")
        deliveries.append(message.data)
        fail(message, clock)

    assert deliveries == [1, 1, 1]
    assert drain("jobs") == [[2], [3]]
    assert [dead.pk for dead in DeadLetter.objects.all()] == line[:1]


@pytest.mark.rule("6.6")
def test_expired_head_unblocks_its_line(clock, group_queue):
    enqueue_many("groups", [Draft(n, ttl=n * 10) for n in (1, 1, 9)], group_id="g")
    clock.advance(10)
    assert drain("groups") == []

    assert sweeps.expire("default", limit=9) == 2

    assert drain("groups") == [[9]]


@pytest.mark.rule("6.6")
def test_cancelled_head_unblocks_its_line(clock, strict_queue):
    head = enqueue("strict", 1, delay=60)
    enqueue("strict", 2)
    assert drain("strict") == []

    assert head.cancel()

    assert drain("strict") == [[2]]


@pytest.mark.rule("6.7")
@pytest.mark.parametrize("priority", [1, -1])
def test_priority_of_an_ordered_message_is_refused(clock, queue, strict_queue, priority):
    for name, group in (("jobs", "g"), ("strict", None)):
        with pytest.raises(PriorityRefused) as caught:
            enqueue(name, None, priority=priority, group_id=group)
        assert caught.value.queue == name

    assert not Message.objects.exists()
