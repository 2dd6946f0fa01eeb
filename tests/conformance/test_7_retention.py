"""7.4 Retention of dead letters, and of completed messages in queues that keep them (3.1)."""

from datetime import timedelta

import pytest

from django_mqlite import enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import Completion
from django_mqlite.verbs import sweeps
from django_mqlite.verbs.settle import Settlement
from tests.support.verbs import (
    claim_ids,
    dead_letter,
    enqueue_and_claim,
    overwrite,
    row_of,
    state_of,
)

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def sweep(limit=100):
    return sweeps.prune_dead_letters("default", limit=limit)


def left(queue="jobs"):
    return [dead.data for dead in DeadLetter.objects.filter(queue=queue).order_by("pk")]


def dead_letter_each_minute(clock):
    """Make the dead letters 0 to 4, one a minute, each with a body of one byte."""
    for number in range(5):
        dead_letter("jobs", number, subject="x")
        clock.advance(MINUTE)


@pytest.mark.rule("7.4")
@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        ({"dlq_max_age": 1 * MINUTE}, []),
        ({"dlq_max_age": 2 * MINUTE}, [4]),
        ({"dlq_max_age": 3 * MINUTE}, [3, 4]),
        ({"dlq_max_age": 9 * MINUTE}, [0, 1, 2, 3, 4]),
        ({"dlq_max_count": 1}, [4]),
        ({"dlq_max_count": 3}, [2, 3, 4]),
        ({"dlq_max_count": 5}, [0, 1, 2, 3, 4]),
        ({"dlq_max_age": 3 * MINUTE, "dlq_max_count": 4, "dlq_max_bytes": 1}, [4]),
        ({}, [0, 1, 2, 3, 4]),
    ],
    ids=str,
)
def test_newest_dead_letters_are_kept_within_the_bounds(clock, make_queue, bounds, kept):
    make_queue("jobs", **bounds)
    dead_letter_each_minute(clock)

    assert sweep() == 5 - len(kept)

    assert left() == kept
    assert sweep() == 0


@pytest.mark.rule("7.4")
@pytest.mark.parametrize(
    ("size", "kept"),
    [
        (60, [b"1" * 10, b"2" * 20, b"3" * 30]),
        (59, [b"2" * 20, b"3" * 30]),
        (30, [b"3" * 30]),
        (29, []),
    ],
)
def test_newest_dead_letters_are_kept_while_their_bodies_fit(clock, make_queue, size, kept):
    make_queue("jobs", dlq_max_bytes=size)
    for number in (1, 2, 3):
        dead_letter("jobs", str(number).encode() * number * 10)
        clock.advance(MINUTE)

    assert sweep() == 3 - len(kept)

    assert left() == kept
    assert sweep() == 0


@pytest.mark.rule("7.4")
def test_oldest_death_is_deleted_first(clock, make_queue):
    make_queue("jobs", dlq_max_count=1)
    first, second = enqueue("jobs", "first"), enqueue("jobs", "second")
    messages = {m.data: m for m in Message.objects.claim("jobs", limit=2)}
    messages["second"].reject("Broken")
    clock.advance(1)
    messages["first"].reject("Broken")

    sweep()

    assert (state_of(first), state_of(second)) == ("dead_lettered", "gone")


@pytest.mark.rule("7.4")
@pytest.mark.parametrize(
    ("setting", "option", "wide"),
    [
        ("DLQ_MAX_AGE", "dlq_max_age", 4 * MINUTE),
        ("DLQ_MAX_COUNT", "dlq_max_count", 3),
        ("DLQ_MAX_BYTES", "dlq_max_bytes", 3),
    ],
)
def test_queue_inherits_overrides_or_removes_a_bound(
    clock, make_queue, settings, setting, option, wide
):
    settings.MQLITE = {setting: 1 if setting != "DLQ_MAX_AGE" else 2 * MINUTE}
    make_queue("inherits")
    make_queue("wider", **{option: wide})
    make_queue("unbounded", **{option: None})
    for number in range(5):
        for queue in ("inherits", "wider", "unbounded"):
            dead_letter(queue, number)
        clock.advance(MINUTE)

    while sweep(limit=2) == 2:
        pass

    assert left("inherits") == [4]
    assert left("wider") == [2, 3, 4]
    assert left("unbounded") == [0, 1, 2, 3, 4]


@pytest.mark.rule("7.4")
def test_messages_in_other_states_are_kept(clock, make_queue):
    make_queue("jobs", dlq_max_age=1, dlq_max_count=1, dlq_max_bytes=1, retain_completed=10**6)
    messages = [
        enqueue("jobs", "scheduled", delay=10**6),
        enqueue_and_claim("jobs", "locked"),
        enqueue_and_claim("jobs", "deferred"),
        enqueue_and_claim("jobs", "completed"),
        enqueue("jobs", "active"),
    ]
    messages[2].defer()
    messages[3].complete()
    before = [row_of(message) for message in messages]
    overwrite(Message.objects.filter(pk=messages[4].pk), priority=-1)
    before[4]["priority"] = -1
    dead = dead_letter("jobs", "dead")
    clock.advance(1)

    assert sweep() == 1

    assert state_of(dead) == "gone"
    assert [row_of(message) for message in messages] == before


@pytest.mark.rule("3.1")
@pytest.mark.parametrize(("after", "kept"), [(59.999, 2), (60, 0)])
def test_completed_message_is_kept_for_the_retention_of_its_queue(clock, make_queue, after, kept):
    make_queue("jobs", retain_completed=60)
    for _ in range(2):
        enqueue_and_claim("jobs", {"a": 1}).complete()
    clock.advance(after)

    assert sweeps.prune_completed("default", limit=100) == 2 - kept

    assert Message.objects.count() == kept
    assert claim_ids("jobs") == []


@pytest.mark.rule("3.1")
def test_each_queue_has_its_own_retention(clock, make_queue):
    make_queue("jobs", retain_completed=60)
    make_queue("more-jobs", retain_completed=3_600)
    short, long = enqueue_and_claim("jobs"), enqueue_and_claim("more-jobs")
    Message.objects.complete_many([short, long])
    clock.advance(3_599)
    dead = dead_letter("jobs")

    assert sweeps.prune_completed("default", limit=100) == 1

    assert [state_of(m) for m in (short, long, dead)] == ["gone", "completed", "dead_lettered"]


@pytest.mark.rule("3.1")
def test_new_retention_applies_to_later_completions(clock, make_queue):
    queue = make_queue("jobs", retain_completed=60)
    before = enqueue_and_claim("jobs")
    before.complete()
    type(queue).objects.configure("jobs", retain_completed=3_600)
    after = enqueue_and_claim("jobs")
    after.complete()
    clock.advance(60)

    assert sweeps.prune_completed("default", limit=100) == 1

    assert (state_of(before), state_of(after)) == ("gone", "completed")


@pytest.mark.rule("3.1")
@pytest.mark.parametrize(
    ("retain", "of_the_queue", "kept_for"),
    [(None, 60, 60), (None, 0, None), (5_000, 60, 5), (5_000, 0, 5), (0, 60, None)],
)
def test_completion_may_set_its_own_retention(clock, make_queue, retain, of_the_queue, kept_for):
    make_queue("jobs", retain_completed=of_the_queue)
    message = enqueue_and_claim("jobs")

    assert Message.objects.settle(message, Completion(result='{"a": 1}', retain_ms=retain))

    if kept_for is None:
        assert state_of(message) == "gone"
        return
    row = row_of(message)
    assert (row["state"], row["result"]) == ("completed", {"a": 1})
    assert row["kept_until"] == clock.now + timedelta(seconds=kept_for)
    clock.advance(kept_for - 0.001)
    assert sweeps.prune_completed("default", limit=100) == 0
    clock.advance(0.001)
    assert sweeps.prune_completed("default", limit=100) == 1


@pytest.mark.rule("3.1")
def test_completions_with_and_without_a_result_are_settled_together(clock, make_queue):
    make_queue("jobs", retain_completed=0)
    enqueue_many("jobs", range(3))
    outcomes = [
        Completion(),
        Completion(result="7", retain_ms=1_000),
        Completion(result='"x"', retain_ms=9_000),
    ]
    messages = Message.objects.claim("jobs", limit=3)
    settlements = [
        Settlement(message=message, outcome=outcome)
        for message, outcome in zip(messages, outcomes, strict=True)
    ]

    held, _ = Message.objects.settle_and_claim(settlements, [], limit=0, worker="w")

    assert held == [True, True, True]
    assert [(m.pk, m.result) for m in Message.objects.order_by("pk")] == [
        (messages[1].pk, 7),
        (messages[2].pk, "x"),
    ]
