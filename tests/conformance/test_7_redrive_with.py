"""7.6 Redrive a dead letter with another body."""

import pytest
from django.db import transaction

from django_mqlite.exceptions import MessageTooLarge, UniqueKeyTaken
from django_mqlite.message import JSON, TASK, TEXT
from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import claim_one, dead_letter, row_of, state_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("7.6")]


def test_redriven_copy_has_the_new_body_and_the_old_options(clock, make_queue):
    make_queue("jobs", dedup_window=3600)
    options = {
        "message_id": "m",
        "correlation_id": "c",
        "reply_to": "r",
        "subject": "s",
        "priority": 3,
        "max_delivery_count": 7,
        "unique_key": "u",
    }
    letter = dead_letter("jobs", {"a": 1}, ttl=600, properties={"k": "v"}, **options)
    clock.advance(5)

    copy = DeadLetter.objects.redrive_with(letter.pk, {"a": 2})

    assert copy == Message.objects.get()
    assert (copy.pk > letter.pk, copy.queue, copy.state, copy.data) == (
        True,
        "jobs",
        "active",
        {"a": 2},
    )
    assert {name: getattr(copy, name) for name in options} == options
    assert copy.properties == {"k": "v", "redriven_from": str(letter.pk)}
    assert (copy.delivery_count, copy.errors) == (0, letter.errors or [])
    assert (copy.enqueued_at, copy.visible_at, copy.expires_at) == (clock.now, clock.now, None)
    assert claim_one("jobs").data == {"a": 2}


def test_redriven_copy_replaces_the_dead_letter_in_one_transaction(queue):
    letter = dead_letter("jobs", 1)
    before = row_of(letter)

    with pytest.raises(RuntimeError), transaction.atomic():
        DeadLetter.objects.redrive_with(letter.pk, 2)
        assert state_of(letter) == "gone"
        raise RuntimeError

    assert row_of(letter) == before
    assert Message.objects.count() == 1


def test_redrive_with_a_body_happens_once(queue):
    letter, active = dead_letter("jobs", 1), Message.objects.enqueue("jobs", 5)

    first = DeadLetter.objects.redrive_with(letter.pk, 2)

    assert DeadLetter.objects.redrive_with(letter.pk, 2) is None
    assert DeadLetter.objects.redrive_with(active.pk, 2) is None
    assert set(Message.objects.values_list("pk", flat=True)) == {first.pk, active.pk}


@pytest.mark.parametrize(
    ("old", "data", "new"),
    [
        (TASK, {"args": [], "kwargs": {}}, TASK),
        ("application/json", {"a": 1}, "application/json"),
        ("application/json", "text", TEXT),
        ("text/csv", "a,b", "text/csv"),
        ("text/csv", [1], JSON),
        ("image/png", b"\x89", "image/png"),
        ("application/json", b"\x89", None),
    ],
)
def test_content_type_is_kept_if_it_fits(queue, old, data, new):
    letter = dead_letter("jobs", 1, content_type=old)

    copy = DeadLetter.objects.redrive_with(letter.pk, data)

    assert (copy.content_type, copy.data) == (new, data)


def test_redriven_copy_is_at_the_end_of_its_line(group_queue):
    letter = dead_letter("groups", 1, group_id="a")
    waiting = Message.objects.enqueue("groups", 2, group_id="a")

    copy = DeadLetter.objects.redrive_with(letter.pk, 3)

    assert (copy.group_id, copy.blocked) == ("a", True)
    first = claim_one("groups")
    assert first.pk == waiting.pk
    first.complete()
    assert claim_one("groups").pk == copy.pk


@pytest.mark.parametrize(
    ("data", "error"),
    [(float("nan"), ValueError), ({1: 2}, TypeError), ("x" * 2_000_000, MessageTooLarge)],
)
def test_invalid_body_leaves_the_dead_letter(queue, data, error):
    letter = dead_letter("jobs", 1)
    before = row_of(letter)

    with pytest.raises(error):
        DeadLetter.objects.redrive_with(letter.pk, data)

    assert row_of(letter) == before


def test_taken_unique_key_leaves_the_dead_letter(queue):
    letter = dead_letter("jobs", 1, unique_key="report")
    holder = Message.objects.enqueue("jobs", 2, unique_key="report")
    before = row_of(letter)

    with pytest.raises(UniqueKeyTaken, match=f"#{holder.pk} has its unique_key 'report'"):
        DeadLetter.objects.redrive_with(letter.pk, 3)

    assert row_of(letter) == before
    assert Message.objects.count() == 2
