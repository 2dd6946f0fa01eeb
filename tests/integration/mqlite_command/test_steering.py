"""mqlite enqueue, cancel, release, run-now, pause, resume, subscribe; redrive by reason."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, row_of, state_of

from .calls import Terminal, answer, mqlite


def refused(*arguments):
    """What it answers in JSON, with exit code 1."""
    stdout = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("mqlite", *map(str, arguments), "--json", stdout=stdout)
    assert ended.value.code == 1
    return json.loads(stdout.getvalue())


def test_a_message_by_hand(queue):
    text = mqlite(
        "enqueue", "jobs", '{"order": 1}', "--subject=s", "--property", "a=b=c", "--property=d=",
        "--group=g", "--message-id=m", "--correlation-id=c", "--reply-to=r",
    )  # fmt: skip

    message = Message.objects.get()
    assert text == f"#{message.pk} enqueued in queue jobs.\n"
    assert (message.data, message.properties) == ({"order": 1}, {"a": "b=c", "d": ""})
    assert (message.subject, message.group_id, message.message_id) == ("s", "g", "m")
    assert (message.correlation_id, message.reply_to) == ("c", "r")


def test_a_message_by_hand_in_json(queue):
    found = answer("enqueue", "jobs", "1", "--delay", "15m", "--priority", 3, "--ttl", "1d")

    message = Message.objects.get()
    assert found == {
        "id": message.pk,
        "queue": "jobs",
        "duplicate": False,
        "visible_at": "2026-01-01T00:15:00+00:00",
    }
    assert (message.priority, message.state) == (3, "scheduled")


def test_a_text_and_what_comes_through_a_pipe(queue, monkeypatch):
    mqlite("enqueue", "jobs", "--text", "{no json")
    monkeypatch.setattr("sys.stdin", io.StringIO('["from", "stdin"]'))
    mqlite("enqueue", "jobs", "-")

    assert [each.data for each in Message.objects.order_by("pk")] == ["{no json", ["from", "stdin"]]


def test_one_that_is_known_already_is_said_to_be(make_queue, clock):
    make_queue("once", dedup_window=60)
    first = answer("enqueue", "once", "1", "--message-id=m")

    assert answer("enqueue", "once", "1", "--message-id=m") == first | {
        "duplicate": True,
        "visible_at": None,
    }
    with pytest.raises(CommandError, match="with different data"):
        mqlite("enqueue", "once", "2", "--message-id=m")


def test_a_scheduled_message_is_cancelled_after_a_yes(queue, typing):
    message = Message.objects.enqueue("jobs", 1, delay=60)
    typing("no\n")
    with pytest.raises(CommandError, match="Nothing was done"):
        mqlite("cancel", message.pk)
    assert state_of(message) == "scheduled"
    typing("y\n")

    assert mqlite("cancel", message.pk) == f"#{message.pk} cancelled.\n"
    assert state_of(message) == "gone"


def test_what_cannot_be_cancelled_is_told_with_its_state_and_the_rest_is_done(queue):
    scheduled = Message.objects.enqueue("jobs", 1, delay=60)
    dead = dead_letter("jobs")

    found = refused("cancel", scheduled.pk, dead.pk, dead.pk, "--yes")

    assert found["cancelled"] == [scheduled.pk]
    (left,) = found["refused"]
    assert (left["id"], left["state"], left["code"]) == (dead.pk, "dead_lettered", "dead_lettered")
    assert state_of(dead) == "dead_lettered"


def is_active():
    return Message.objects.enqueue("jobs", 1)


def is_retrying():
    message = enqueue_and_claim("jobs")
    message.abandon(delay=60)
    return message


@pytest.mark.parametrize(
    ("command", "message", "text"),
    [
        (("cancel", "--yes"), is_active, "not cancelled: it is active."),
        (("cancel", "--yes"), is_retrying, "not cancelled: it is retrying."),
        (("cancel", "--yes"), lambda: dead_letter("jobs"), "not cancelled: it is dead-lettered."),
        (("release", "--yes"), is_active, "not released: it has no lease, it is active."),
        (("run-now",), is_active, "not made due: it is active."),
    ],
)
def test_refusal_names_the_state(queue, capsys, command, message, text):
    id = message().pk

    with pytest.raises(SystemExit):
        call_command("mqlite", *command, str(id))

    assert capsys.readouterr().out == f"#{id} {text}\n"


def test_a_lease_is_released(queue, typing):
    message = enqueue_and_claim("jobs")
    typing("yes\n")

    assert mqlite("release", message.pk, "--reason", "stuck") == f"#{message.pk} released.\n"
    assert state_of(message) == "active"
    assert row_of(message)["errors"][0]["message"] == "stuck"


def test_a_lease_that_began_after_the_question_is_left_alone(queue, monkeypatch):
    message = enqueue_and_claim("jobs")

    class Slow(Terminal):
        def readline(self, *_):
            message.abandon(delay=0)
            claim_one("jobs")
            return "y\n"

    monkeypatch.setattr("sys.stdin", Slow())

    assert refused("release", message.pk)["refused"][0]["code"] == "leased"
    assert state_of(message) == "locked"


def test_what_has_no_lease_is_told(queue):
    message = Message.objects.enqueue("jobs", 1)

    found = refused("release", message.pk, 10**12, "--yes")

    assert [each["state"] for each in found["refused"]] == ["active", None]


def test_a_schedule_is_brought_forward(queue):
    message = Message.objects.enqueue("jobs", 1, delay=60)

    assert answer("run-now", message.pk) == {"due": [message.pk], "refused": []}
    assert state_of(message) == "active"
    assert refused("run-now", message.pk)["refused"][0]["state"] == "active"


def test_queues_are_paused_and_resumed(queue, make_queue):
    make_queue("others")

    assert mqlite("pause", "jobs") == "Queue jobs paused.\n"
    assert answer("pause", "jobs", "others") == {
        "queues": [
            {"queue": "jobs", "paused": True, "changed": False},
            {"queue": "others", "paused": True, "changed": True},
        ]
    }
    assert mqlite("resume", "jobs", "others") == "Queue jobs resumed.\nQueue others resumed.\n"
    assert mqlite("resume", "jobs") == "Queue jobs was not paused.\n"


def test_one_unknown_queue_pauses_none(queue):
    with pytest.raises(CommandError, match="Did you mean 'jobs'"):
        mqlite("pause", "jobs", "job")

    assert not Queue.objects.get(name="jobs").paused


def test_a_queue_is_subscribed_to_a_topic(db):
    text = mqlite("subscribe", "orders", "stock", "--filter", 'subject == "paid"')

    assert text == 'Queue stock subscribed to topic orders: subject == "paid"\n'
    assert answer("subscribe", "orders", "stock") == {
        "topic": "orders",
        "subscription": "stock",
        "filter": "",
    }
    assert Subscription.objects.get().filter == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("orders", "stock", "--filter", "subject ="), "not a valid CEL expression"),
        (("orders", "stock", "--filter", "colour == 1"), "uses colour"),
        (("orders", "jobs"), "taken by a queue"),
        (("orders", "a b"), "Invalid queue name"),
    ],
)
def test_a_bad_subscription_leaves_nothing(queue, arguments, said):
    with pytest.raises(CommandError, match=said):
        mqlite("subscribe", *arguments)

    assert Subscription.objects.count() == 0


@pytest.fixture
def two_reasons(queue):
    broken = dead_letter("jobs")
    lost = enqueue_and_claim("jobs")
    lost.reject("Lost")
    return broken, lost


def test_redrive_by_reason_into_another_queue_at_a_rate(two_reasons, make_queue):
    make_queue("again")
    broken, lost = two_reasons

    found = answer("redrive", "jobs", "--reason", "Lost", "--into", "again", "--rate", 2)

    assert found == {"queue": "jobs", "redriven": 1, "kept": []}
    assert (state_of(broken), state_of(lost)) == ("dead_lettered", "gone")
    assert Message.objects.get(queue="again").state == "active"


def test_purge_by_reason(two_reasons):
    broken, lost = two_reasons

    assert answer("purge", "jobs", "--reason", "Lost", "--yes")["purged"] == 1
    assert (state_of(broken), state_of(lost)) == ("dead_lettered", "gone")


def test_a_bar_shows_how_far_it_has_come_on_a_terminal_and_not_in_the_answer(queue):
    for _ in range(3):
        dead_letter("jobs")
    stdout, stderr = io.StringIO(), Terminal()

    call_command("mqlite", "redrive", "jobs", "--json", stdout=stdout, stderr=stderr)

    assert json.loads(stdout.getvalue()) == {"queue": "jobs", "redriven": 3, "kept": []}
    assert DeadLetter.objects.count() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--state", "asleep"), "Invalid state 'asleep': use one of active, locked,"),
        (("list", "--after", "x"), "after must be the `next` of a page"),
        (("list", "job"), "Did you mean 'jobs'"),
        (("list", "--limit", "0"), "Invalid number '0': use a whole number from 1"),
        (("why",), "required: ID"),
        (("why", "-1"), "No message has the message id '-1'"),
        (("show", "0"), "Invalid number '0': use a whole number from 1"),
        (("show", "one"), "No message has the message id 'one'"),
        (("why", "9" * 5_000), "use a whole number from 1"),
        (("stats", "--watch", "-1"), "Invalid duration '-1'"),
        (("stats", "--watch", "0"), "Invalid duration '0': use at least 0.1 s"),
        (("stats", "--watch", "soon"), "Invalid duration 'soon': use seconds"),
        (("enqueue", "jobs"), "required: DATA"),
        (("enqueue", "jobs", "{"), "DATA is not valid JSON"),
        (("enqueue", "jobs", "NaN"), "data is nan, which JSON cannot represent"),
        (("enqueue", "job", "1"), "Did you mean 'jobs'"),
        (("enqueue", "jobs", "1", "--property", "x"), "Invalid property 'x': use NAME=VALUE."),
        (("enqueue", "jobs", "1", "--property", "=x"), "Invalid property '=x': use NAME=VALUE."),
        (("enqueue", "jobs", "1", "--priority", "high"), "invalid int value"),
        (("enqueue", "jobs", "1", "--priority", 2**63), "priority"),
        (("enqueue", "jobs", "1", "--group", "g", "--priority", "1"), "priority"),
        (("enqueue", "jobs", "1", "--delay", "later"), "Invalid duration 'later': use seconds"),
        (("cancel",), "required: ID"),
        (("cancel", "1"), "without a terminal: pass --yes"),
        (("release", "1"), "without a terminal: pass --yes"),
        (("release", "x", "--yes"), "Invalid number 'x': use a whole number"),
        (("pause",), "required: QUEUE"),
        (("resume", "job"), "Did you mean 'jobs'"),
        (("redrive", "jobs", "--rate", "0"), "Invalid rate '0': use a positive number"),
        (("redrive", "jobs", "--rate", "nan"), "Invalid rate 'nan': use a positive number"),
        (("redrive", "jobs", "--rate", "1e9"), "rate must be between"),
        (("redrive", "jobs", "--into", "job"), "Did you mean 'jobs'"),
        (("redrive", "jobs", "--id", "1", "--reason", "x"), "--id and --reason cannot"),
        (("purge", "jobs", "--all", "--reason", "x", "--yes"), "--all selects every dead letter"),
        (("subscribe", "orders"), "required: SUBSCRIPTION"),
        (("backup",), "required: PATH"),
        (("vacuum", "--full"), "without a terminal: pass --yes"),
        (("doctor", "--slow"), "unrecognized arguments: --slow"),
    ],
    ids=lambda value: " ".join(map(str, value))[:50] if isinstance(value, tuple) else None,
)
def test_a_bad_argument_is_named_and_nothing_is_done(queue, arguments, said):
    dead_letter("jobs")
    before = list(Message.objects.values())

    with pytest.raises(CommandError) as caught:
        mqlite(*arguments)

    assert said in str(caught.value)
    assert list(Message.objects.values()) == before
