"""6 Ordering, where messages fail, wait and come back."""

import pytest

from django_mqlite import Draft, enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Message
from django_mqlite.verbs import sweeps
from tests.support.verbs import activate, claim_ids, claim_one, reap

pytestmark = pytest.mark.django_db

MODES = ["standard", "group_fifo", "strict_fifo"]


@pytest.fixture(params=MODES)
def line(clock, make_queue, request):
    """Three messages of one line; their ids."""
    make_queue("jobs", ordering_mode=request.param, max_delivery_count=3)
    return [m.pk for m in enqueue_many("jobs", [Draft(n, group_id="g") for n in (1, 2, 3)])]


def finish():
    """What is still given, one after the other, to a worker that succeeds."""
    seen = []
    while messages := Message.objects.claim("jobs", limit=9):
        (message,) = messages
        seen.append(message.data)
        message.complete()
    return seen


@pytest.mark.rule("6.4")
def test_at_most_one_message_of_a_line_is_in_flight(line):
    for id in line:
        message = claim_one("jobs", worker="me")
        assert message.pk == id
        assert claim_ids("jobs") == []
        message.complete()


@pytest.mark.rule("6.5")
def test_a_head_that_fails_and_backs_off_is_seen_twice_before_the_next(clock, line):
    head = claim_one("jobs")
    head.abandon(delay=5)
    seen = [head.data]

    clock.advance(4.999)
    activate()
    assert finish() == []

    clock.advance(0.001)
    activate()
    assert seen + finish() == [1, 1, 2, 3]


@pytest.mark.rule("6.5")
def test_an_expired_lease_that_nobody_has_released_blocks_its_line(clock, line):
    claim_one("jobs")
    clock.advance(3_600)

    assert finish() == []

    reap()
    assert finish() == [1, 2, 3]


@pytest.mark.rule("6.6")
@pytest.mark.parametrize("how", ["abandon", "die"])
def test_a_poison_head_goes_to_the_dead_letters_and_the_line_goes_on(clock, line, how):
    seen = []
    while not DeadLetter.objects.exists():
        message = claim_one("jobs")
        seen.append(message.data)
        if how == "abandon":
            message.abandon(delay=0)
        else:
            clock.advance(30)
            reap()

    assert seen == [1, 1, 1]
    assert finish() == [2, 3]
    assert [dead.pk for dead in DeadLetter.objects.all()] == line[:1]


@pytest.mark.rule("6.6")
def test_a_head_whose_time_to_live_ends_unblocks(clock, make_queue):
    make_queue("jobs", ordering_mode="group_fifo")
    enqueue_many("jobs", [Draft(n, ttl=n * 10) for n in (1, 1, 9)], group_id="g")
    clock.advance(10)
    assert finish() == []

    assert sweeps.expire("default", limit=9) == 2

    assert finish() == [9]


@pytest.mark.rule("6.6")
def test_a_cancelled_head_unblocks(clock, make_queue):
    make_queue("jobs", ordering_mode="strict_fifo")
    head = enqueue("jobs", 1, delay=60)
    enqueue("jobs", 2)
    assert finish() == []

    assert head.cancel()

    assert finish() == [2]


@pytest.mark.rule("6.1")
def test_other_groups_and_ungrouped_messages_pass_a_blocked_one(clock, queue):
    enqueue("jobs", "blocked", group_id="g")
    claim_one("jobs").abandon(delay=60)
    enqueue("jobs", "behind it", group_id="g")
    enqueue("jobs", "low")
    enqueue("jobs", "high", priority=1)
    enqueue("jobs", "other group", group_id="h")

    given = Message.objects.claim("jobs", limit=9)

    assert [message.data for message in given] == ["high", "low", "other group"]


@pytest.mark.rule("6.4")
def test_a_blocked_backlog_is_not_seen_by_a_claim(clock, group_queue):
    """Also the answer to "is there anything": a worker must not spin on what it cannot take."""
    enqueue_many("groups", [Draft(n, group_id="g") for n in range(50)])
    claim_one("groups")

    assert Message.objects.claimable() == set()
    assert claim_ids("groups") == []
