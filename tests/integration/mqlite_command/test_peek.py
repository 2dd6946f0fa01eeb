"""mqlite peek."""

import io
import re

import pytest

from django_mqlite.models import Message
from tests.support.verbs import enqueue_and_claim, state_of

from .calls import Terminal, answer, mqlite

ESCAPES = "\x1b[2J\x1b]0;title\x07 [red]markup[/red]\nsecond line"


def test_messages_are_shown_in_claim_order_and_left_alone(queue):
    late = Message.objects.enqueue("jobs", {"order": 1}, subject="late")
    urgent = Message.objects.enqueue("jobs", 2, priority=7)

    _heads, *rows = mqlite("peek", "jobs").splitlines()

    assert [int(row.split()[0]) for row in rows] == [urgent.pk, late.pk]
    assert '{"order":1}' in rows[1]
    assert state_of(late) == "active"


def test_limit_bounds_it(queue):
    for number in range(3):
        Message.objects.enqueue("jobs", number)

    assert len(answer("peek", "jobs", "--limit", 2)["messages"]) == 2


def test_dead_letters_are_shown_with_their_last_error(queue):
    enqueue_and_claim("jobs", 1).reject("NoStock", "article 17", error=ValueError("boom"))

    text = mqlite("peek", "jobs", "--dead")

    assert re.search(r"NoStock +article 17 .*boom", text)
    assert not answer("peek", "jobs")["messages"]


def test_an_empty_queue_says_so(queue):
    assert mqlite("peek", "jobs") == "Queue jobs has no messages to claim.\n"
    assert mqlite("peek", "jobs", "--dead") == "Queue jobs has no dead letters.\n"
    assert answer("peek", "jobs") == {"queue": "jobs", "messages": []}


def test_json_has_stable_keys_and_no_lock_token(queue):
    message = enqueue_and_claim("jobs", {"order": 1}, subject="order")
    message.reject("NoStock", "article 17", error=ValueError("boom"))

    (found,) = answer("peek", "jobs", "--dead")["messages"]

    (error,) = found.pop("errors")
    assert error["message"] == "boom"
    assert error["started_at"] == error["failed_at"] == "2026-01-01T00:00:00+00:00"
    assert found == {
        "id": message.pk,
        "queue": "jobs",
        "state": "dead_lettered",
        "priority": 0,
        "blocked": False,
        "delivery_count": 1,
        "interruptions": 0,
        "enqueued_at": "2026-01-01T00:00:00+00:00",
        "visible_at": "2026-01-01T00:00:00+00:00",
        "expires_at": None,
        "finished_at": "2026-01-01T00:00:00+00:00",
        "message_id": None,
        "correlation_id": None,
        "reply_to": None,
        "group_id": None,
        "subject": "order",
        "content_type": "application/json",
        "properties": None,
        "data": {"order": 1},
        "body_base64": None,
        "dead_letter_reason": "NoStock",
        "dead_letter_description": "article 17",
    }


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"\xff\0", None), (b"NaN", "application/json"), (b'"\\ud800"', "application/json")],
)
def test_a_body_that_json_cannot_hold_comes_as_base64(queue, body, content_type):
    Message.objects.enqueue("jobs", body, content_type=content_type)

    (found,) = answer("peek", "jobs")["messages"]

    assert found["data"] is None
    assert found["body_base64"]


@pytest.mark.parametrize("stdout", [io.StringIO, Terminal])
def test_a_terminal_does_not_obey_what_a_message_says(queue, stdout):
    message = enqueue_and_claim("jobs", ESCAPES, subject=ESCAPES)
    message.reject(ESCAPES, ESCAPES, error=ESCAPES)
    Message.objects.enqueue("jobs", ESCAPES, subject=ESCAPES, group_id=ESCAPES)

    text = mqlite("peek", "jobs", stdout=stdout())
    text += mqlite("peek", "jobs", "--dead", stdout=stdout())

    assert "\x1b[2J" not in text
    assert "\x1b]0" not in text
    assert "\x07" not in text
    assert "[red]" in text
