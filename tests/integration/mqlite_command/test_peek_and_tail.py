"""mqlite peek and tail."""

import io
import json

import pytest

from django_mqlite.models import DeadLetter, Message
from tests.support.verbs import dead_letter, enqueue_and_claim, row_of

from .calls import SLEEP, answer, mqlite

# peek


def test_peek_shows_messages_in_claim_order_and_changes_none(queue):
    late = Message.objects.enqueue("jobs", {"order": 1}, subject="late")
    urgent = Message.objects.enqueue("jobs", 2, priority=7)
    before = row_of(late)

    _heads, *rows = mqlite("peek", "jobs").splitlines()
    (first,) = answer("peek", "jobs", "--limit", 1)["messages"]

    assert [int(row.split()[0]) for row in rows] == [urgent.pk, late.pk]
    assert '{"order":1}' in rows[1]
    assert first["id"] == urgent.pk
    assert row_of(late) == before


def test_peek_without_messages_is_a_sentence(queue):
    assert mqlite("peek", "jobs") == "Queue jobs has no messages to claim.\n"
    assert mqlite("peek", "jobs", "--dead") == "Queue jobs has no dead letters.\n"


def test_peek_at_dead_letters_has_errors_and_no_lock_token(queue):
    message = enqueue_and_claim("jobs", {"order": 1}, subject="order")
    message.reject("NoStock", "article 17", error=ValueError("boom"))

    assert "NoStock: article 17, ValueError: boom" in mqlite("peek", "jobs", "--dead")
    assert answer("peek", "jobs")["messages"] == []
    (document,) = answer("peek", "jobs", "--dead")["messages"]
    (error,) = document.pop("errors")
    assert error["message"] == "boom"
    assert error["started_at"] == error["failed_at"] == "2026-01-01T00:00:00+00:00"
    times = dict.fromkeys(("enqueued_at", "visible_at", "finished_at"), error["failed_at"])
    assert document == {
        "id": message.pk, "queue": "jobs", "state": "dead_lettered", "priority": 0,
        "blocked": False, "delivery_count": 1, "interruptions": 0,
        "uncounted_retries": 0, **times, "expires_at": None,
        "message_id": None, "correlation_id": None, "reply_to": None, "group_id": None,
        "unique_key": None, "error_class": "ValueError",
        "subject": "order", "content_type": "application/json", "properties": None,
        "data": {"order": 1}, "body_base64": None, "dead_letter_reason": "NoStock",
        "dead_letter_description": "article 17",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"\xff\0", None), (b"NaN", "application/json"), (b'"\\ud800"', "application/json")],
)
def test_body_without_a_json_value_is_base64(queue, body, content_type):
    Message.objects.enqueue("jobs", body, content_type=content_type)

    (document,) = answer("peek", "jobs")["messages"]

    assert document["data"] is None
    assert document["body_base64"]


# tail


@pytest.fixture
def between_polls(monkeypatch):
    """Call a function between two polls each; Ctrl-C follows the last."""

    def set_steps(*steps):
        remaining = list(steps)

        def pause(seconds):
            if not remaining:
                raise KeyboardInterrupt
            remaining.pop(0)()

        monkeypatch.setattr(SLEEP, pause)

    return set_steps


def test_tail_shows_each_new_message_of_the_queue_once(queue, make_queue, between_polls):
    make_queue("others")
    Message.objects.enqueue("jobs", "before")
    between_polls(
        lambda: Message.objects.enqueue("jobs", "first", subject="s"),
        lambda: Message.objects.enqueue("others", "other"),
        lambda: Message.objects.enqueue("jobs", "second"),
    )

    lines = mqlite("tail", "jobs").splitlines()

    assert [line.split()[-1] for line in lines] == ["first", "second"]
    assert lines[0].startswith("2026-01-01 00:00:00  #")


def test_tail_prints_one_json_document_per_line(queue, between_polls):
    between_polls(lambda: Message.objects.enqueue_many("jobs", range(250)))

    lines = mqlite("tail", "--json").splitlines()

    assert [json.loads(line)["data"] for line in lines] == list(range(250))


def test_tail_shows_dead_letters_in_the_order_of_their_end(queue, clock, between_polls):
    def die(number):
        clock.advance(1)
        dead_letter("jobs", priority=number)

    die(1)
    between_polls(lambda: (die(2), die(3)), lambda: DeadLetter.objects.all()[:0], lambda: die(4))

    lines = mqlite("tail", "--dead").splitlines()

    assert [line[:19] for line in lines] == [f"2026-01-01 00:00:0{second}" for second in (2, 3, 4)]
    assert all(line.endswith("Broken") for line in lines)


@pytest.mark.parametrize(("count", "noted"), [(99, False), (100, True)])
def test_tail_notes_that_dead_letters_may_be_missing(queue, between_polls, count, noted):
    dead_letter("jobs")
    stderr = io.StringIO()
    between_polls(lambda: [dead_letter("jobs") for _ in range(count)], lambda: None)

    mqlite("tail", "--dead", stderr=stderr)

    assert ("Only the last 100 dead letters" in stderr.getvalue()) == noted
