"""Redrive and purge of a queue: selection by age, limit and reason, in batches."""

import pytest

from django_mqlite.models import DeadLetter, Message
from django_mqlite.verbs import dead_letters
from tests.support.verbs import dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


@pytest.fixture
def letters(clock, queue, make_queue):
    """The ids of five dead letters of `jobs`, a minute apart; the last enqueued died first."""
    make_queue("other")
    Message.objects.enqueue_many("jobs", range(5))
    messages = Message.objects.claim("jobs", limit=5, lock_duration=3_600)
    for message in reversed(messages):
        message.reject("Broken")
        clock.advance(60)
    dead_letter("other")
    Message.objects.enqueue("jobs", "active")
    return [message.pk for message in reversed(messages)]


@pytest.fixture(params=["redrive_queue", "purge_queue"])
def verb(request):
    return getattr(DeadLetter.objects, request.param)


def left():
    return [dead.pk for dead in DeadLetter.objects.peek("jobs", limit=100)]


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        ({"limit": 2}, 2),
        ({"limit": 100}, 5),
        ({"older_than": 301}, 0),
        ({"older_than": 300}, 1),
        ({"older_than": 241}, 1),
        ({"older_than": 180}, 3),
        ({"older_than": 60}, 5),
        ({"limit": 2, "older_than": 180}, 2),
        ({"limit": 9, "older_than": 180}, 3),
    ],
    ids=str,
)
def test_selection_takes_the_oldest_dead_letters_of_the_queue(letters, verb, selection, count):
    assert verb("jobs", **selection) == count

    assert left() == letters[count:]
    assert DeadLetter.objects.filter(queue="other").count() == 1
    assert Message.objects.filter(queue="jobs", body=b"active", state="active").exists()


@pytest.mark.parametrize("limit", [None, 1, 3, 4, 5, 9])
def test_selection_larger_than_a_batch_takes_several(letters, verb, limit, monkeypatch):
    monkeypatch.setattr(dead_letters, "BATCH", 2)
    everything = {"everything": True} if verb.__name__ == "purge_queue" else {}
    expected = min(limit or 5, 5)
    counts = []

    assert verb("jobs", limit=limit, progress=counts.append, **everything) == expected

    assert left() == letters[expected:]
    assert counts == [*range(2, expected, 2), expected]


def test_ids_larger_than_a_batch_take_several(letters, monkeypatch):
    monkeypatch.setattr(dead_letters, "BATCH", 2)

    assert DeadLetter.objects.redrive(iter(letters)) == 5


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_empty_selection_takes_no_message(letters, verb):
    assert getattr(DeadLetter.objects, verb)([]) == 0
    assert getattr(DeadLetter.objects, verb)(iter(())) == 0


@pytest.mark.parametrize("bound", [{}, {"older_than": 0}, {"limit": None, "older_than": None}])
def test_unbounded_purge_is_refused(letters, bound):
    with pytest.raises(ValueError, match="older_than"):
        DeadLetter.objects.purge_queue("jobs", **bound)

    assert left() == letters


def test_reason_selects_over_many_batches(clock, queue, verb, monkeypatch):
    monkeypatch.setattr(dead_letters, "BATCH", 3)
    ids = {"Broken": set(), "Lost": set()}
    for number in range(20):
        reason = "Lost" if number % 4 == 0 else "Broken"
        message = enqueue_and_claim("jobs", priority=number)
        message.reject(reason)
        ids[reason].add(message.pk)

    assert verb("jobs", reason="Lost") == 5

    assert set(left()) == ids["Broken"]
