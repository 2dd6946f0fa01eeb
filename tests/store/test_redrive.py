"""Dead letters go back to work, or for good."""

import pytest

from django_mqlite import QueueNotFound, enqueue, signals
from django_mqlite.models import DeadLetter, Message
from django_mqlite.verbs import dead_letters
from tests.support.verbs import (
    claim_ids,
    claim_one,
    dead_letter,
    enqueue_and_claim,
    state_of,
)

pytestmark = pytest.mark.django_db


def test_a_redriven_message_is_active_with_its_deliveries_counted_from_zero(clock, queue):
    message = enqueue_and_claim("jobs", {"a": 1}, priority=2)
    message.reject("Broken", "cause", error=ValueError("x"))
    clock.advance(5)

    assert DeadLetter.objects.redrive([message.pk]) == 1

    again = Message.objects.get(pk=message.pk)
    assert (again.state, again.delivery_count, again.visible_at) == ("active", 0, clock.now)
    assert (again.dead_letter_reason, again.dead_letter_description) == (None, None)
    assert (again.finished_at, again.data, again.priority) == (None, {"a": 1}, 2)
    assert [entry["message"] for entry in again.errors] == ["x"]
    assert claim_one("jobs").delivery_count == 1


def test_a_redriven_message_gets_its_full_bound_again(clock, make_queue):
    make_queue("jobs", max_delivery_count=2)
    enqueue("jobs", None)
    for _ in range(2):
        claim_one("jobs").abandon(delay=0)
    (dead,) = DeadLetter.objects.peek("jobs")

    DeadLetter.objects.redrive([dead.pk])

    claim_one("jobs").abandon(delay=0)
    assert state_of(dead) == "active"
    claim_one("jobs").abandon(delay=0)
    assert state_of(dead) == "dead_lettered"


def test_the_time_to_live_does_not_come_back(clock, queue):
    dead = dead_letter("jobs", ttl=60)
    clock.advance(3_600)

    DeadLetter.objects.redrive([dead.pk])

    assert claim_ids("jobs") == [dead.pk]


def test_other_ids_are_passed_over(clock, queue):
    dead = dead_letter("jobs")
    active = enqueue("jobs", None)
    locked = claim_one("jobs")
    scheduled = enqueue("jobs", None, delay=60)
    ids = [dead.pk, active.pk, locked.pk, scheduled.pk, 999_999, -1, 0, 2**70]

    assert DeadLetter.objects.redrive(ids) == 1
    assert DeadLetter.objects.redrive(ids) == 0

    locked.complete()
    assert state_of(scheduled) == "scheduled"


def test_redriving_leaves_the_other_dead_letters(clock, queue):
    first, second = dead_letter("jobs"), dead_letter("jobs")

    DeadLetter.objects.redrive([second.pk])

    assert (state_of(first), state_of(second)) == ("dead_lettered", "active")


@pytest.fixture
def graveyard(clock, queue, make_queue):
    """Five dead letters of jobs, a minute apart, the first one enqueued the last to die."""
    make_queue("other")
    for _ in range(5):
        enqueue("jobs", None)
    messages = Message.objects.claim("jobs", limit=5, lock_duration=3_600)
    for message in reversed(messages):
        message.reject("Broken")
        clock.advance(60)
    dead_letter("other")
    enqueue("jobs", "alive")
    return [message.pk for message in reversed(messages)]


def left():
    return [dead.pk for dead in DeadLetter.objects.peek("jobs", limit=100)]


VERBS = ["redrive_queue", "purge_queue"]


@pytest.fixture(params=VERBS)
def over_queue(request):
    return getattr(DeadLetter.objects, request.param)


def test_a_limit_takes_the_longest_dead_first(graveyard, over_queue):
    assert over_queue("jobs", limit=2) == 2
    assert left() == graveyard[2:]


@pytest.mark.parametrize(("seconds", "count"), [(301, 0), (300, 1), (241, 1), (180, 3), (60, 5)])
def test_an_age_takes_those_that_died_at_least_so_long_ago(graveyard, over_queue, seconds, count):
    assert over_queue("jobs", older_than=seconds) == count
    assert left() == graveyard[count:]


def test_limit_and_age_bound_together(graveyard, over_queue):
    assert over_queue("jobs", limit=2, older_than=180) == 2
    assert over_queue("jobs", limit=9, older_than=180) == 1
    assert left() == graveyard[3:]


@pytest.mark.parametrize("limit", [None, 1, 3, 4, 5, 9])
def test_more_than_a_batch_is_done_in_several(graveyard, over_queue, limit, monkeypatch):
    monkeypatch.setattr(dead_letters, "BATCH", 2)
    everything = {"everything": True} if over_queue.__name__ == "purge_queue" else {}

    done = over_queue("jobs", limit=limit, **everything)

    assert done == min(limit or 5, 5)
    assert left() == graveyard[done:]


def test_ids_beyond_a_batch_are_done_in_several(graveyard, monkeypatch):
    monkeypatch.setattr(dead_letters, "BATCH", 2)

    assert DeadLetter.objects.redrive(iter(graveyard)) == 5


def test_other_queues_and_other_states_are_left_alone(graveyard, over_queue):
    over_queue("jobs", limit=100)

    assert [dead.queue for dead in DeadLetter.objects.all()] == ["other"]
    assert Message.objects.filter(queue="jobs", body=b"alive", state="active").exists()


@pytest.mark.parametrize(
    ("bound", "error"),
    [
        ({"limit": 0}, ValueError),
        ({"limit": -1}, ValueError),
        ({"limit": float("nan")}, TypeError),
        ({"limit": True}, TypeError),
        ({"limit": "5"}, TypeError),
        ({"older_than": -1}, ValueError),
        ({"older_than": float("nan")}, ValueError),
        ({"older_than": "60"}, TypeError),
        ({"older_than": 10**12}, ValueError),
    ],
)
def test_a_bound_that_is_none_is_refused_by_name(graveyard, over_queue, bound, error):
    with pytest.raises(error, match=next(iter(bound))):
        over_queue("jobs", **bound)

    assert left() == graveyard


@pytest.mark.parametrize("bound", [{}, {"older_than": 0}, {"limit": None, "older_than": None}])
def test_an_unbounded_purge_must_be_said(graveyard, bound):
    with pytest.raises(ValueError, match="older_than"):
        DeadLetter.objects.purge_queue("jobs", **bound)

    assert left() == graveyard


def test_a_purge_of_everything_deletes_the_dead_letters_for_good(graveyard):
    assert DeadLetter.objects.purge_queue("jobs", everything=True) == 5

    assert left() == []
    assert not Message.objects.filter(pk__in=graveyard).exists()


def test_a_whole_queue_is_redriven_without_a_bound(graveyard):
    assert DeadLetter.objects.redrive_queue("jobs") == 5

    assert left() == []
    assert Message.objects.filter(queue="jobs", state="active").count() == 6


def test_an_unknown_queue_is_refused(graveyard, over_queue):
    with pytest.raises(QueueNotFound, match="Did you mean 'jobs'"):
        over_queue("job", limit=1)


def test_a_purge_by_id_takes_dead_letters_only(clock, queue):
    dead, active = dead_letter("jobs"), enqueue("jobs", None)
    locked = claim_one("jobs")
    waiting = enqueue("jobs", None)

    assert DeadLetter.objects.purge([dead.pk, active.pk, locked.pk, waiting.pk, 999]) == 1

    assert (state_of(dead), state_of(active), state_of(waiting)) == ("gone", "locked", "active")


@pytest.mark.parametrize("ids", [[], iter(())], ids=["list", "iterator"])
def test_no_ids_are_no_messages(graveyard, ids):
    assert DeadLetter.objects.redrive(ids) == 0
    assert DeadLetter.objects.purge(ids) == 0


@pytest.mark.parametrize("name", ["messages_redriven", "messages_purged"])
def test_a_batch_is_told_once_after_the_commit(
    clock, queue, name, django_capture_on_commit_callbacks
):
    ids = [dead_letter("jobs").pk for _ in range(3)]
    heard = []

    # Every signal carries these, whatever it tells; a receiver may name them.
    def receive(*, queue, message_id, using, count, **facts):
        heard.append((queue, message_id, using, count))

    signal = getattr(signals, name)
    signal.connect(receive)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            if name == "messages_redriven":
                DeadLetter.objects.redrive(ids)
            else:
                DeadLetter.objects.purge(ids)
            assert heard == []
    finally:
        signal.disconnect(receive)

    ((_, message_id, using, count),) = heard
    assert (message_id, using, count) == (None, "default", 3)


def test_a_reason_takes_those_that_died_of_it_over_many_batches(
    clock, queue, over_queue, monkeypatch
):
    monkeypatch.setattr(dead_letters, "BATCH", 3)
    letters = {"Broken": [], "Lost": []}
    for number in range(20):
        reason = "Lost" if number % 4 == 0 else "Broken"
        message = enqueue_and_claim("jobs", priority=number)
        message.reject(reason)
        letters[reason].append(message)

    assert over_queue("jobs", reason="Lost") == 5

    assert {state_of(each) for each in letters["Broken"]} == {"dead_lettered"}
    assert "dead_lettered" not in {state_of(each) for each in letters["Lost"]}


def test_progress_is_told_after_each_batch(clock, queue, over_queue, monkeypatch):
    monkeypatch.setattr(dead_letters, "BATCH", 3)
    for _ in range(7):
        dead_letter("jobs", priority=1)
    told = []

    over_queue("jobs", limit=10, progress=told.append)

    assert told == [3, 6, 7]
