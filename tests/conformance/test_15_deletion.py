"""15 An operator empties a queue, and prunes completed messages before their time."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_mqlite import QueueNotFound, enqueue, signals
from django_mqlite.models import Message
from django_mqlite.types import Completion
from tests.support.verbs import (
    claim_one,
    dead_letter,
    deferred,
    enqueue_and_claim,
    state_of,
)

pytestmark = pytest.mark.django_db

TRANSACTIONAL = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


@pytest.fixture
def refer_to():
    """Refer to the message in a row of the project."""

    def refer_to(message):
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS project_row (m INTEGER REFERENCES mqlite_messages (id))"
            )
            cursor.execute("INSERT INTO project_row VALUES (%s)", [message.pk])

    yield refer_to
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS project_row")


def completed(queue="jobs", *, retain=24 * HOUR):
    message = enqueue_and_claim(queue)
    retain_ms = retain // timedelta(milliseconds=1)
    Message.objects.settle(message, Completion(result="7", retain_ms=retain_ms))
    return message


# Empty


@pytest.mark.rule("15.8")
def test_empty_deletes_messages_that_wait_and_dead_letters(clock, queue, make_queue):
    make_queue("others")
    kept = [completed(), enqueue("others", None)]
    deleted = [
        dead_letter("jobs"),
        deferred("jobs"),
        enqueue("jobs", None, delay=60),
        enqueue("jobs", None),
    ]
    held = enqueue_and_claim("jobs", priority=5)

    assert Message.objects.empty_queue("jobs") == 4
    assert Message.objects.empty_queue("jobs") == 0

    assert {state_of(message) for message in deleted} == {"gone"}
    assert [state_of(message) for message in kept] == ["completed", "active"]
    held.complete()


@pytest.mark.rule("15.8")
@TRANSACTIONAL
def test_queue_is_emptied_in_batches_up_to_the_newest_message(clock, queue):
    Message.objects.enqueue_many("jobs", [b""] * 2_500)
    counts, later = [], []

    def enqueue_another(count):
        counts.append(count)
        later.append(enqueue("jobs", None, priority=5))

    assert Message.objects.empty_queue("jobs", limit=1_200, progress=enqueue_another) == 1_200
    assert counts == [1_000, 1_200]
    assert Message.objects.empty_queue("jobs") == 1_302
    later.clear()
    Message.objects.enqueue_many("jobs", [b""] * 1_001)

    assert Message.objects.empty_queue("jobs", progress=enqueue_another) == 1_001

    assert {state_of(message) for message in later} == {"active"}


@pytest.mark.rule("15.8")
@pytest.mark.parametrize("limit", [None, 3])
def test_empty_keeps_and_names_referenced_messages(clock, queue, refer_to, limit):
    messages = [enqueue("jobs", None) for _ in range(4)]
    refer_to(messages[1])

    emptied = Message.objects.empty_queue("jobs", limit=limit)

    assert (emptied, emptied.referenced) == (3, (messages[1].pk,))
    assert list(Message.objects.all()) == [messages[1]]


@pytest.mark.rule("15.8")
def test_message_behind_a_held_head_can_be_claimed_after_the_queue_was_emptied(clock, group_queue):
    head = enqueue_and_claim("groups", group_id="a")
    enqueue("groups", None, group_id="a")

    assert Message.objects.empty_queue("groups") == 1
    later = enqueue("groups", None, group_id="a")
    head.complete()

    assert claim_one("groups") == later


@pytest.mark.rule("15.8")
def test_empty_in_atomic_is_the_callers(clock, queue, django_capture_on_commit_callbacks):
    message = enqueue("jobs", None)
    counts = []

    def receive(count, **facts):
        counts.append(count)

    signals.messages_purged.connect(receive)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            with transaction.atomic():
                Message.objects.empty_queue("jobs")
                transaction.set_rollback(True)
            assert state_of(message) == "active"
            Message.objects.empty_queue("jobs")
            assert counts == []
    finally:
        signals.messages_purged.disconnect(receive)

    assert counts == [1]


# Prune


@pytest.mark.rule("15.9")
def test_completed_messages_are_pruned_by_queue_and_age(clock, queue, make_queue):
    make_queue("others")
    old = [completed(), completed("others"), completed(retain=1_000 * HOUR)]
    dead = dead_letter("jobs")
    clock.advance(HOUR)
    recent = completed()

    assert Message.objects.prune_completed("jobs", older_than=HOUR) == 2
    assert [state_of(message) for message in old] == ["gone", "completed", "gone"]
    assert Message.objects.prune_completed(older_than=HOUR) == 1
    assert state_of(recent) == "completed"
    assert Message.objects.prune_completed(everything=True) == 1
    assert [state_of(recent), state_of(dead)] == ["gone", "dead_lettered"]


@pytest.mark.rule("15.9")
def test_oldest_completed_messages_are_pruned_up_to_a_limit(clock, queue):
    messages = []
    for _ in range(3):
        messages.append(completed())
        clock.advance(1)

    assert Message.objects.prune_completed(limit=2) == 2

    assert [state_of(message) for message in messages] == ["gone", "gone", "completed"]


@pytest.mark.rule("15.9")
def test_dry_run_counts_and_deletes_nothing(clock, queue, refer_to):
    messages = [completed() for _ in range(4)]
    refer_to(messages[0])

    for limit, count in ((None, 3), (2, 2)):
        found = Message.objects.prune_completed(everything=True, limit=limit, dry_run=True)
        assert (found, found.referenced) == (count, (messages[0].pk,))
    assert Message.objects.count() == 4

    pruned = Message.objects.prune_completed(limit=3)
    assert (pruned, pruned.referenced) == (3, (messages[0].pk,))


@pytest.mark.rule("15.9")
@TRANSACTIONAL
def test_completed_messages_are_pruned_in_batches(clock, make_queue):
    make_queue("kept", retain_completed=60)
    Message.objects.enqueue_many("kept", [b""] * 1_200)
    Message.objects.complete_many(Message.objects.claim("kept", limit=1_200))
    counts = []

    assert Message.objects.prune_completed("kept", everything=True, progress=counts.append) == 1_200
    assert counts == [1_000, 1_200]


@pytest.mark.rule("15.8")
@pytest.mark.rule("15.9")
@pytest.mark.parametrize(
    ("verb", "arguments", "options", "error"),
    [
        ("empty_queue", (None,), {}, TypeError),
        ("empty_queue", ("job",), {}, QueueNotFound),
        ("empty_queue", ("jobs",), {"limit": 0}, ValueError),
        ("prune_completed", ("jobs",), {}, ValueError),
        ("prune_completed", (7,), {"everything": True}, TypeError),
        ("prune_completed", ("job",), {"everything": True}, QueueNotFound),
        ("prune_completed", (), {"older_than": 0}, ValueError),
        ("prune_completed", (), {"older_than": "1d"}, TypeError),
        ("prune_completed", (), {"limit": 0}, ValueError),
    ],
)
def test_invalid_argument_deletes_nothing(clock, queue, verb, arguments, options, error):
    messages = [completed(), enqueue("jobs", None)]

    with pytest.raises(error):
        getattr(Message.objects, verb)(*arguments, **options)

    assert [state_of(message) for message in messages] == ["completed", "active"]
