"""mqlite enqueue, cancel, release, run-now, discard and activate."""

import io
import json

import pytest
from django.core.management import CommandError

from django_mqlite.models import Message
from tests.support.verbs import (
    claim_one,
    dead_letter,
    deferred,
    enqueue_and_claim,
    row_of,
    state_of,
)

from .calls import answer, failed, mqlite

# enqueue


def test_enqueue_options_become_columns(queue):
    text = mqlite(
        "enqueue", "jobs", '{"order": 1}', "--subject=s", "--property", "a=b=c", "--property=d=",
        "--group=g", "--message-id=m", "--correlation-id=c", "--reply-to=r",
    )  # fmt: skip

    message = Message.objects.get()
    assert text == f"#{message.pk} enqueued in queue jobs.\n"
    assert (message.data, message.properties) == ({"order": 1}, {"a": "b=c", "d": ""})
    assert (message.subject, message.group_id, message.message_id) == ("s", "g", "m")
    assert (message.correlation_id, message.reply_to) == ("c", "r")


def test_enqueue_answers_in_json(queue):
    document = answer("enqueue", "jobs", "1", "--delay", "15m", "--priority", 3, "--ttl", "1d")

    message = Message.objects.get()
    assert document == {
        "id": message.pk,
        "queue": "jobs",
        "duplicate": False,
        "visible_at": "2026-01-01T00:15:00+00:00",
    }
    assert (message.priority, message.state) == (3, "scheduled")
    assert (message.expires_at - message.enqueued_at).days == 1


def test_enqueue_takes_text_and_stdin(queue, monkeypatch):
    mqlite("enqueue", "jobs", "--text", "{no json")
    monkeypatch.setattr("sys.stdin", io.StringIO('["from", "stdin"]'))
    mqlite("enqueue", "jobs", "-")

    first, second = Message.objects.order_by("pk")
    assert (first.data, second.data) == ("{no json", ["from", "stdin"])


def test_enqueue_of_a_duplicate_names_the_first_message(make_queue, clock):
    make_queue("once", dedup_window=60)
    first = answer("enqueue", "once", "1", "--message-id=m")
    duplicate = {"duplicate": True, "visible_at": None}

    assert answer("enqueue", "once", "1", "--message-id=m") == first | duplicate
    assert mqlite("enqueue", "once", "1", "--message-id=m") == (
        f"Not enqueued: queue once already has it as #{first['id']}.\n"
    )
    with pytest.raises(CommandError, match="with different data"):
        mqlite("enqueue", "once", "2", "--message-id=m")


# cancel, release, run-now, discard and activate


def scheduled():
    return Message.objects.enqueue("jobs", 1, delay=60)


def active():
    return Message.objects.enqueue("jobs", 1)


def locked():
    return enqueue_and_claim("jobs")


def retrying():
    message = locked()
    message.abandon(delay=60)
    return message


def dead():
    return dead_letter("jobs")


def set_aside():
    return deferred("jobs")


def never_enqueued():
    return Message(pk=99)


ACTIONS = [
    (("cancel", "--yes"), scheduled, "cancelled", "cancelled", "gone"),
    (("release", "--yes"), locked, "released", "released", "active"),
    (("run-now",), scheduled, "made due", "due", "active"),
    (("run-now",), retrying, "made due", "due", "active"),
    (("discard", "--yes"), locked, "discarded", "discarded", "dead_lettered"),
    (("activate",), set_aside, "activated", "activated", "active"),
]
REFUSALS = [
    (("cancel", "--yes"), active, "not cancelled: it is active."),
    (("cancel", "--yes"), retrying, "not cancelled: it is retrying."),
    (("cancel", "--yes"), dead, "not cancelled: it is dead-lettered."),
    (("release", "--yes"), active, "not released: it has no lease, it is active."),
    (("run-now",), active, "not made due: it is active."),
    (("discard", "--yes"), dead, "not discarded: it is dead-lettered."),
    (("activate",), active, "not activated: it is active."),
    (
        ("cancel", "--yes"),
        never_enqueued,
        "not cancelled: there has never been a message #99; the last one is #0.",
    ),
]


@pytest.mark.parametrize(("command", "message", "done", "key", "state"), ACTIONS)
def test_action_changes_messages_and_names_them(queue, command, message, done, key, state):
    first, second = message(), message()

    assert mqlite(*command, first.pk) == f"#{first.pk} {done}.\n"
    assert answer(*command, second.pk) == {key: [second.pk], "refused": []}

    assert (state_of(first), state_of(second)) == (state, state)


@pytest.mark.parametrize(("command", "message", "text"), REFUSALS)
def test_refusal_names_the_state(queue, command, message, text):
    id = message().pk

    assert failed(*command, id) == f"#{id} {text}\n"


def test_refused_message_stops_no_other(queue):
    first, letter = scheduled(), dead()

    document = json.loads(failed("cancel", first.pk, letter.pk, letter.pk, "--yes", "--json"))

    assert document["cancelled"] == [first.pk]
    (refused,) = document["refused"]
    assert refused.pop("text")
    assert refused == {"id": letter.pk, "state": "dead_lettered", "code": "dead_lettered"}
    assert state_of(letter) == "dead_lettered"


@pytest.mark.parametrize(
    ("command", "message"), [("cancel", scheduled), ("release", locked), ("discard", locked)]
)
def test_action_without_a_yes_changes_nothing(queue, reply, command, message):
    message = message()
    before = row_of(message)
    reply("no\n")

    with pytest.raises(CommandError, match="Nothing was done"):
        mqlite(command, message.pk)

    assert row_of(message) == before


def test_release_records_the_reason(queue, reply):
    message = locked()
    reply("yes\n")

    mqlite("release", message.pk, "--reason", "stuck")

    assert row_of(message)["errors"][0]["message"] == "stuck"


def test_release_leaves_a_lease_that_began_after_the_question(queue, reply):
    message = locked()
    reply("y\n", meanwhile=lambda: (message.abandon(delay=0), claim_one("jobs")))

    assert failed("release", message.pk) == (
        f"#{message.pk} not released: it was claimed again in the meantime.\n"
    )
    assert state_of(message) == "locked"


# discard and activate in a queue


@pytest.mark.parametrize("options", [(), ("--state", "deferred"), ("--limit", 1)])
def test_messages_of_a_queue_are_discarded(queue, make_queue, reply, options):
    make_queue("others")
    messages = [set_aside(), active()]
    other = Message.objects.enqueue("others", 1)
    count = 1 if options else 2
    reply("y\n")

    text = mqlite("discard", "--queue", "jobs", *options)

    noun = "message" if count == 1 else "messages"
    assert text == f"{count} {noun} of queue jobs discarded.\n"
    assert [state_of(message) for message in messages].count("dead_lettered") == count
    assert state_of(other) == "active"
    if "--state" in options:
        assert state_of(messages[0]) == "dead_lettered"


def test_retrying_messages_are_discarded_by_error_class(queue, reply):
    for error in (ValueError("bad"), ValueError("worse"), KeyError("k")):
        enqueue_and_claim("jobs").abandon(delay=60, error=error)
    selection = ("--queue", "jobs", "--error-class", "ValueError")
    reply("no\n")

    with pytest.raises(CommandError, match="Nothing was done"):
        mqlite("discard", *selection)
    assert answer("discard", *selection, "--limit", 1, "--yes") == {
        "queue": "jobs", "discarded": 1,
    }  # fmt: skip
    assert mqlite("discard", *selection, "--yes") == "1 message of queue jobs discarded.\n"
    assert mqlite("discard", *selection, "--yes") == "0 messages of queue jobs discarded.\n"
    with pytest.raises(CommandError, match="--error-class selects messages of a queue"):
        mqlite("discard", 1, "--error-class", "ValueError")

    assert Message.objects.filter(state="scheduled").count() == 1


def test_deferred_messages_of_a_queue_are_activated(queue, reply):
    messages = [set_aside(), set_aside()]
    reply("no\n")
    with pytest.raises(CommandError, match="Nothing was done"):
        mqlite("activate", "--queue", "jobs")

    assert answer("activate", "--queue", "jobs", "--yes") == {"queue": "jobs", "activated": 2}
    assert answer("activate", "--queue", "jobs", "--yes") == {"queue": "jobs", "activated": 0}

    assert {state_of(message) for message in messages} == {"active"}


# Message ids

BY_MESSAGE_ID = [
    (("cancel", "--yes"), {"delay": 60}, "gone"),
    (("run-now",), {"delay": 60}, "active"),
    (("discard", "--yes"), {}, "dead_lettered"),
]


@pytest.mark.parametrize(("command", "options", "state"), BY_MESSAGE_ID)
def test_action_takes_a_message_id(queue, command, options, state):
    message = Message.objects.enqueue("jobs", 1, message_id="order-7", **options)
    verb, *rest = command

    mqlite(verb, "order-7", message.pk, *rest)

    assert state_of(message) == state


def test_release_takes_a_message_id(queue):
    message = enqueue_and_claim("jobs", message_id="order-7")

    assert mqlite("release", "order-7", "--yes") == f"#{message.pk} released.\n"


def test_activate_takes_a_message_id(queue):
    message = deferred("jobs", message_id="order-7")

    mqlite("activate", "order-7")

    assert state_of(message) == "active"


@pytest.mark.parametrize("command", [("redrive",), ("purge", "--yes")])
def test_dead_letter_is_selected_by_message_id(queue, command):
    chosen = dead_letter("jobs", message_id="order-7")
    other = dead_letter("jobs")
    verb, *rest = command

    mqlite(verb, "jobs", "--id", "order-7", *rest)

    assert state_of(chosen) != "dead_lettered"
    assert state_of(other) == "dead_lettered"


@pytest.mark.parametrize("ids", [("nope",), ("1", "nope")])
def test_action_with_an_unknown_message_id_does_nothing(queue, ids):
    message = Message.objects.enqueue("jobs", 1, delay=60)

    with pytest.raises(CommandError, match="No message has the message id 'nope'"):
        mqlite("cancel", *ids, "--yes")

    assert state_of(message) == "scheduled"
