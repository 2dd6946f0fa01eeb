"""7 Dead letters."""

from datetime import timedelta

import pytest

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message, Queue
from tests.support.verbs import claim_ids, claim_one, dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


@pytest.mark.rule("7.1")
def test_a_dead_letter_is_a_state_of_the_message_and_not_another_queue(clock, queue):
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
def test_redrive_makes_it_active_with_count_zero_in_its_old_place(clock, group_queue):
    dead = dead_letter("groups", group_id="g")
    later = enqueue("groups", None, group_id="g")

    DeadLetter.objects.redrive([dead.pk])

    again = claim_one("groups")
    assert (again.pk, again.delivery_count) == (dead.pk, 1)
    again.complete()
    assert claim_ids("groups") == [later.pk]


@pytest.mark.rule("7.2")
def test_redrive_is_by_selection_by_count_and_by_age(clock, queue):
    ids = []
    for _ in range(6):
        ids.append(dead_letter("jobs").pk)
        clock.advance(60)

    assert DeadLetter.objects.redrive([ids[4]]) == 1
    assert DeadLetter.objects.redrive_queue("jobs", limit=2) == 2
    assert DeadLetter.objects.redrive_queue("jobs", older_than=timedelta(minutes=3)) == 2

    assert [dead.pk for dead in DeadLetter.objects.all()] == [ids[5]]


@pytest.mark.rule("7.3")
def test_purge_deletes_and_must_be_told_to_be_unbounded(clock, queue):
    for _ in range(3):
        dead_letter("jobs")

    with pytest.raises(ValueError, match="everything"):
        DeadLetter.objects.purge_queue("jobs")
    assert DeadLetter.objects.count() == 3

    assert DeadLetter.objects.purge_queue("jobs", limit=1) == 1
    assert DeadLetter.objects.purge_queue("jobs", everything=True) == 2
    assert not Message.objects.exists()


@pytest.mark.rule("7.3")
@pytest.mark.parametrize("verb", ["redrive_queue", "purge_queue"])
@pytest.mark.parametrize(
    "bound",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": float("nan")},
        {"older_than": 0},
        {"older_than": -1},
        {"older_than": float("nan")},
        {"older_than": timedelta()},
    ],
    ids=repr,
)
def test_zero_negative_and_nan_bounds_are_refused(clock, queue, verb, bound):
    dead_letter("jobs")

    with pytest.raises((TypeError, ValueError), match=next(iter(bound))):
        getattr(DeadLetter.objects, verb)("jobs", **bound)

    assert DeadLetter.objects.count() == 1
