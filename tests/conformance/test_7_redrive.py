"""7.2 and 7.3 Redrive and purge: into another queue, by age, count and rate, within bounds."""

from datetime import timedelta

import pytest

from django_mqlite import GroupRequired, enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import (
    activate,
    claim_ids,
    claim_one,
    dead_letter,
    enqueue_and_claim,
    overwrite,
    row_of,
    state_of,
)

pytestmark = pytest.mark.django_db


def dead_letters(queue, count, **options):
    enqueue_many(queue, [None] * count, **options)
    messages = Message.objects.claim(queue, limit=count)
    for message in messages:
        message.reject("Broken", error="x")
    return [message.pk for message in messages]


@pytest.mark.rule("7.2")
def test_message_moved_to_another_queue_has_a_new_id(clock, queue, make_queue):
    make_queue("other", default_ttl=60)
    headers = {
        "message_id": "m",
        "correlation_id": "c",
        "reply_to": "r",
        "subject": "s",
        "properties": {"k": "v"},
        "priority": 3,
        "max_delivery_count": 7,
    }
    dead = dead_letter("jobs", {"a": 1}, ttl=600, **headers)
    clock.advance(5)

    assert DeadLetter.objects.redrive([dead.pk], into="other") == 1

    (moved,) = Message.objects.all()
    assert moved.pk > dead.pk
    assert (moved.queue, moved.state, moved.data) == ("other", "active", {"a": 1})
    assert {name: getattr(moved, name) for name in headers} == headers
    assert (moved.delivery_count, moved.enqueued_at, moved.visible_at) == (0, clock.now, clock.now)
    assert (moved.dead_letter_reason, moved.finished_at, moved.expires_at) == (None, None, None)


@pytest.mark.rule("7.2")
def test_move_never_duplicates_a_message(clock, queue, make_queue):
    make_queue("other")
    ids = dead_letters("jobs", 3)

    assert DeadLetter.objects.redrive([*ids, ids[0], *ids], into="other") == 3
    assert DeadLetter.objects.redrive(ids, into="other") == 0

    assert Message.objects.count() == 3
    assert len(claim_ids("other")) == 3


@pytest.mark.rule("7.2")
def test_moved_messages_are_at_the_end_of_the_line(clock, queue, make_queue):
    make_queue("strict", ordering_mode="strict_fifo")
    waiting = enqueue("strict", None).pk
    first, second = (dead_letter("jobs", n, priority=n).pk for n in (0, 5))

    DeadLetter.objects.redrive([second, first], into="strict")

    assert [m.priority for m in Message.objects.order_by("pk")] == [0, 0, 0]
    assert claim_ids("strict") == [waiting]
    Message.objects.get(pk=waiting).delete()
    assert claim_one("strict").data == 0


@pytest.mark.rule("7.2")
def test_group_fifo_queue_takes_all_moved_messages_or_none(clock, queue, group_queue):
    grouped = dead_letter("jobs", group_id="g")
    loose = dead_letter("jobs")

    with pytest.raises(GroupRequired, match=rf"dead letter #{loose.pk} has no group_id") as refused:
        DeadLetter.objects.redrive([grouped.pk, loose.pk], into="groups")

    assert (refused.value.queue, refused.value.dead_letter) == ("groups", loose.pk)
    assert DeadLetter.objects.count() == 2
    assert DeadLetter.objects.redrive([grouped.pk], into="groups") == 1


@pytest.mark.rule("7.2")
@pytest.mark.parametrize("into", [None, "other"])
@pytest.mark.parametrize("how", ["ids", "queue"])
def test_rate_spreads_out_redriven_messages(clock, queue, make_queue, into, how, monkeypatch):
    monkeypatch.setattr("django_mqlite.verbs.dead_letters.BATCH", 2)
    make_queue("other")
    ids = dead_letters("jobs", 5)

    if how == "ids":
        moved = DeadLetter.objects.redrive(ids, into=into, rate=2)
    else:
        moved = DeadLetter.objects.redrive_queue("jobs", into=into, rate=2)

    assert moved == 5
    due = [m.visible_at - clock.now for m in Message.objects.order_by("pk")]
    assert due == [timedelta(seconds=n / 2) for n in range(5)]
    counts = []
    for _ in range(5):
        activate()
        counts.append(len(claim_ids(into or "jobs")))
        clock.advance(0.5)
    assert counts == [1, 1, 1, 1, 1]


@pytest.mark.rule("7.2")
def test_redriven_message_has_no_time_to_live(clock, make_queue):
    make_queue("jobs", default_ttl=60)
    dead = dead_letter("jobs", ttl=5)
    DeadLetter.objects.redrive([dead.pk])

    clock.advance(10**9)

    assert claim_ids("jobs") == [dead.pk]


@pytest.mark.rule("7.2")
@pytest.mark.parametrize("retain", [0, 60])
def test_only_dead_letters_are_redriven_and_only_once(clock, make_queue, retain):
    make_queue("jobs", retain_completed=retain)
    active = enqueue("jobs", None, delay=60)
    locked = enqueue_and_claim("jobs")
    completed = enqueue_and_claim("jobs")
    completed.complete()
    dead = dead_letter("jobs")
    others = [m for m in (active, locked, completed) if state_of(m) != "gone"]
    before = [row_of(message) for message in others]
    ids = [active.pk, locked.pk, completed.pk, dead.pk, dead.pk, 10**6, -1, 2**70]

    assert DeadLetter.objects.redrive(ids) == 1
    assert DeadLetter.objects.redrive(ids) == 0
    assert DeadLetter.objects.purge(ids) == 0

    assert [row_of(message) for message in others] == before


@pytest.mark.rule("7.3")
@pytest.mark.parametrize("verb", ["redrive_queue", "purge_queue"])
def test_largest_bounds_are_accepted(clock, queue, verb):
    ids = dead_letters("jobs", 2)
    act = getattr(DeadLetter.objects, verb)

    assert act("jobs", older_than=timedelta(days=36_500)) == 0
    assert act("jobs", limit=2**63 - 1) == len(ids)


@pytest.mark.rule("7.3")
@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_selection_of_5000_ids(clock, queue, verb):
    ids = [message.pk for message in enqueue_many("jobs", [None] * 5_000)]
    overwrite(Message.objects.all(), state="dead_lettered", finished_at=clock.now)

    assert DeadLetter.objects.matching("jobs", ids=ids).count() == 5_000
    assert getattr(DeadLetter.objects, verb)(ids) == 5_000

    assert not DeadLetter.objects.exists()
    left = Message.objects.count()
    assert left == (5_000 if verb == "redrive" else 0)


@pytest.mark.rule("3.8")
def test_batch_of_5000_leases(clock, queue):
    enqueue_many("jobs", [None] * 5_000)
    messages = Message.objects.claim("jobs", limit=5_000)

    assert Message.objects.renew_many(messages, 60) == [True] * 5_000
    assert Message.objects.complete_many(messages) == [True] * 5_000
    assert not Message.objects.exists()


@pytest.mark.rule("3.4")
def test_claim_of_5000_deferred_messages(clock, queue):
    enqueue_many("jobs", [None] * 5_000)
    ids = [message.pk for message in Message.objects.all()]
    overwrite(Message.objects.all(), state="deferred")

    messages = Message.objects.claim_deferred("jobs", ids)

    assert [message.pk for message in messages] == ids
