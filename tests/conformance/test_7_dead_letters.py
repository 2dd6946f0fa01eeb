"""7.1 to 7.3 Dead letters."""

import math
from datetime import timedelta

import pytest

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message, Queue
from tests.support.verbs import activate, claim_ids, claim_one, dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


@pytest.mark.rule("7.1")
def test_dead_letter_is_a_state_and_not_another_queue(clock, queue):
    message = enqueue_and_claim("jobs", {"a": 1})
    message.reject("Broken")

    dead = DeadLetter.objects.get()
    assert (dead.pk, dead.queue, dead.state, dead.data) == (
        message.pk,
        "jobs",
        "dead_lettered",
        {"a": 1},
    )
    assert [queue.name for queue in Queue.objects.all()] == ["jobs"]


@pytest.mark.rule("7.2")
@pytest.mark.parametrize("delay", [None, 60], ids=["active", "backing off"])
def test_redriven_message_has_count_zero_and_its_old_place(clock, group_queue, delay):
    dead = enqueue_and_claim("groups", {"a": 1}, group_id="g")
    dead.reject("Broken", "because", error=ValueError("x"))
    later = enqueue("groups", None, group_id="g")
    if delay:
        claim_one("groups").abandon(delay=delay)
    clock.advance(5)

    assert DeadLetter.objects.redrive([dead.pk]) == 1

    row = Message.objects.get(pk=dead.pk)
    assert (row.state, row.visible_at, row.data) == ("active", clock.now, {"a": 1})
    assert (row.dead_letter_reason, row.dead_letter_description) == (None, None)
    assert (row.finished_at, [entry["message"] for entry in row.errors]) == (None, ["x"])
    again = claim_one("groups")
    assert (again.pk, again.delivery_count) == (dead.pk, 1)
    again.complete()
    clock.advance(60)
    activate()
    assert claim_ids("groups") == [later.pk]


@pytest.mark.rule("7.2")
def test_redriven_message_has_its_full_delivery_limit(clock, make_queue):
    make_queue("jobs", max_delivery_count=2)
    dead = dead_letter("jobs")
    DeadLetter.objects.redrive([dead.pk])

    claim_one("jobs").abandon(delay=0)
    claim_one("jobs").abandon(delay=0)

    assert DeadLetter.objects.get().delivery_count == 2


@pytest.mark.rule("7.2")
def test_redrive_selects_by_id_by_count_and_by_age(clock, queue):
    ids = []
    for _ in range(6):
        ids.append(dead_letter("jobs").pk)
        clock.advance(60)

    assert DeadLetter.objects.redrive([ids[4]]) == 1
    assert DeadLetter.objects.redrive_queue("jobs", limit=2) == 2
    assert DeadLetter.objects.redrive_queue("jobs", older_than=timedelta(minutes=3)) == 2

    assert [dead.pk for dead in DeadLetter.objects.all()] == [ids[5]]


@pytest.mark.rule("7.3")
def test_purge_deletes_and_requires_a_bound(clock, queue):
    for _ in range(3):
        dead_letter("jobs")

    with pytest.raises(ValueError, match="everything"):
        DeadLetter.objects.purge_queue("jobs")
    assert DeadLetter.objects.count() == 3

    assert DeadLetter.objects.purge_queue("jobs", limit=1) == 1
    assert DeadLetter.objects.purge_queue("jobs", everything=True) == 2
    assert not Message.objects.exists()


BOUNDS = {
    "limit": [0, -1, math.nan, True, "5", 2**63, 10**30, math.inf],
    "older_than": [0, timedelta(), -1, math.nan, "60", math.inf, 10**30, timedelta.max],
    "rate": [0, -1, math.nan, math.inf, 1e-9, 10**9, True, "5"],
}


@pytest.mark.rule("7.2")
@pytest.mark.rule("7.3")
@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("redrive_queue", "limit"),
        ("redrive_queue", "older_than"),
        ("redrive_queue", "rate"),
        ("redrive", "rate"),
        ("purge_queue", "limit"),
        ("purge_queue", "older_than"),
    ],
)
def test_invalid_bound_is_refused_by_name(clock, queue, verb, name):
    dead = dead_letter("jobs")
    target = [dead.pk] if verb == "redrive" else "jobs"

    for value in BOUNDS[name]:
        with pytest.raises((TypeError, ValueError), match=name):
            getattr(DeadLetter.objects, verb)(target, **{name: value})

    assert DeadLetter.objects.count() == 1
