"""mqlite list, show, why, tail: looking changes nothing."""

import io
import json

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import DeadLetter, Message, Queue
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim

from .calls import SLEEP, Terminal, answer, mqlite


@pytest.fixture(autouse=True)
def in_utc(settings):
    settings.TIME_ZONE = "UTC"


@pytest.fixture
def looks(monkeypatch):
    """Calls `between` before each further look, and ends the loop after the last of them."""

    def then(*between):
        steps = list(between)

        def rest(seconds):
            if not steps:
                raise KeyboardInterrupt
            steps.pop(0)()

        monkeypatch.setattr(SLEEP, rest)

    return then


def test_a_list_in_text(queue):
    Message.objects.enqueue("jobs", 1, subject="first", group_id="a")
    dead_letter("jobs", 2, priority=1)

    assert mqlite("list").splitlines() == [
        "id  queue  state          group  subject  deliveries  enqueued             reason",
        "2   jobs   dead-lettered  -      -        1           2026-01-01 00:00:00  Broken",
        "1   jobs   active         a      first    0           2026-01-01 00:00:00  -",
    ]


def test_a_list_in_json(queue):
    message = Message.objects.enqueue(
        "jobs", 1, subject="s", group_id="a", message_id="m", correlation_id="c", delay=5
    )

    assert answer("list", "jobs", "--state", "scheduled") == {
        "messages": [
            {
                "id": message.pk,
                "queue": "jobs",
                "state": "scheduled",
                "priority": 0,
                "group_id": "a",
                "subject": "s",
                "message_id": "m",
                "correlation_id": "c",
                "delivery_count": 0,
                "enqueued_at": "2026-01-01T00:00:00+00:00",
                "visible_at": "2026-01-01T00:00:05+00:00",
                "locked_until": None,
                "finished_at": None,
                "dead_letter_reason": None,
            }
        ],
        "next": None,
    }


def test_the_next_page_begins_where_the_last_one_says(queue):
    for number in range(5):
        Message.objects.enqueue("jobs", number, subject="s")
    ids, after = [], []

    for _ in range(3):
        page = answer("list", "--search", "s", "--limit", 2, *after)
        ids += [each["id"] for each in page["messages"]]
        after = ["--after", page["next"]]

    assert ids == sorted(ids)
    assert (len(ids), page["next"]) == (5, None)


def test_a_list_of_nothing_says_so(db):
    Queue.objects.all().delete()

    assert mqlite("list") == "There are no such messages.\n"
    assert answer("list") == {"messages": [], "next": None}


def test_a_list_reads_no_body(queue):
    Message.objects.enqueue("jobs", "secret")

    with CaptureQueriesContext(connection) as captured:
        mqlite("list", "jobs")

    assert not any('"body"' in query["sql"] for query in captured)


def test_why_in_text_and_json(queue):
    message = Message.objects.enqueue("jobs", 1, delay=90)

    assert mqlite("why", message.pk) == (
        f"#{message.pk}: is not due before 00:01:30 (in 1 min 30 s)\n"
    )
    assert answer("why", message.pk) == {
        "id": message.pk,
        "code": "not_due",
        "text": "is not due before 00:01:30 (in 1 min 30 s)",
        "facts": {
            "id": message.pk,
            "queue": "jobs",
            "state": "scheduled",
            "delivery_count": 0,
            "max_delivery_count": 10,
            "paused": False,
            "last_error": None,
            "visible_at": "2026-01-01T00:01:30+00:00",
        },
    }


def test_why_of_one_that_never_was_is_an_answer(queue):
    assert answer("why", 10**12)["code"] == "never_enqueued"
    assert "there has never been a message #1000000000000" in mqlite("why", 10**12)


def test_a_message_is_shown_with_all_but_its_token(queue, clock):
    Message.objects.enqueue(
        "jobs", {"order": 1}, subject="s", properties={"k": "v"}, max_delivery_count=5
    )
    message = claim_one("jobs", worker="host-a:4711")
    message.abandon(delay=0, error=ValueError("boom"))
    message = claim_one("jobs", worker="host-a:4711")

    text = mqlite("show", message.pk)
    shown = answer("show", message.pk)

    assert text.startswith(
        f"#{message.pk}: locked by host-a:4711 until 00:00:30 (in 30 s), delivery 2 of 5\n"
        "  queue: jobs\n"
    )
    assert '\n  property k: v\nbody, 11 bytes:\n  {\n    "order": 1\n  }\n' in text
    assert "delivery 1 failed, host-a:4711: builtins.ValueError: boom:\n" in text
    assert shown["why"]["code"] == "leased"
    assert shown["data"] == {"order": 1}
    assert (shown["locked_by"], shown["max_delivery_count"]) == ("host-a:4711", 5)
    assert shown["locked_until"] == "2026-01-01T00:00:30+00:00"
    assert message.lock_token not in text + json.dumps(shown)


@pytest.mark.parametrize("command", ["show", "why"])
def test_a_message_can_be_named_by_its_message_id(queue, command):
    message = Message.objects.enqueue("jobs", 1, message_id="order-17")

    assert answer(command, "order-17")["id"] == message.pk


@pytest.mark.parametrize("command", ["show", "why"])
def test_a_message_id_that_several_have_names_none_of_them(queue, make_queue, command):
    make_queue("mails")
    first = Message.objects.enqueue("jobs", 1, message_id="order-17")
    second = Message.objects.enqueue("mails", 1, message_id="order-17")

    with pytest.raises(CommandError, match=f"#{first.pk} of jobs, #{second.pk} of mails"):
        mqlite(command, "order-17")


def test_of_many_that_have_the_message_id_the_first_are_named(make_queue):
    for name in "abcdefghijk":
        make_queue(name)
        Message.objects.enqueue(name, 1, message_id="order-17")

    with pytest.raises(CommandError, match=r"#1 of a, .*, #10 of j, …\. Pass a sequence number"):
        mqlite("why", "order-17")


def test_a_message_without_a_lease_is_shown_without_one(queue):
    Queue.objects.configure("jobs", retain_completed=60)
    Message.objects.enqueue("jobs", 1)
    message = claim_one("jobs", worker="host-a:4711")
    message.complete()

    text = mqlite("show", message.pk)

    assert "  completed by: host-a:4711\n" in text
    assert "locked" not in text


def test_a_message_that_is_gone_is_shown_by_what_became_of_it(queue):
    message = enqueue_and_claim("jobs")
    message.complete()

    with pytest.raises(CommandError, match=rf"^#{message.pk}: was completed at 00:00:00"):
        mqlite("show", message.pk)


@pytest.mark.parametrize(
    ("body", "content_type", "shown"),
    [
        (b"\x00\xff", None, "body, 2 bytes:\n  00 ff\n"),
        (b"", None, "body, 0 bytes\n"),
        (b"{", "application/json", "body, 1 bytes:\n  7b\n"),
        ("line\n\x1b[2J", None, "body, 9 bytes:\n  line\n  \\x1b[2J\n"),
        (
            "x" * 5_000,
            None,
            "truncated to 4,000 characters:\n  " + "x" * 4_000 + "\n",
        ),
    ],
    ids=["bytes", "empty", "broken", "escapes", "long"],
)
def test_any_body_is_shown(queue, body, content_type, shown):
    message = Message.objects.enqueue("jobs", body, content_type=content_type)

    assert shown in mqlite("show", message.pk)


def test_what_a_message_says_is_not_obeyed_by_the_terminal(queue):
    evil = "\x1b[2J\x07 [red]x[/red]"
    message = enqueue_and_claim("jobs", evil, subject=evil, group_id=evil, properties={evil: evil})
    message.reject(evil, evil, error=evil)

    for arguments in (("list",), ("show", message.pk), ("why", message.pk)):
        text = mqlite(*arguments, stdout=Terminal())
        assert "\x1b[2J" not in text
        assert "\x07" not in text


def test_tail_shows_what_comes_from_now_on_and_each_once(queue, make_queue, looks):
    make_queue("others")
    Message.objects.enqueue("jobs", "before")
    looks(
        lambda: Message.objects.enqueue("jobs", "one", subject="s"),
        lambda: Message.objects.enqueue("others", "two"),
        lambda: Message.objects.enqueue("jobs", "three"),
    )

    lines = mqlite("tail", "jobs").splitlines()

    assert [line.split()[-1] for line in lines] == ["one", "three"]
    assert lines[0].startswith("2026-01-01 00:00:00  #")


def test_tail_in_json_is_a_document_a_line(queue, looks):
    looks(lambda: Message.objects.enqueue_many("jobs", range(250)))

    lines = mqlite("tail", "--json").splitlines()

    assert [json.loads(line)["data"] for line in lines] == list(range(250))


def test_tail_of_the_dead_shows_deaths_in_their_order(queue, clock, looks):
    def die(number):
        clock.advance(1)
        dead_letter("jobs", priority=number)

    die(1)
    looks(lambda: (die(2), die(3)), lambda: DeadLetter.objects.all()[:0], lambda: die(4))

    lines = mqlite("tail", "--dead").splitlines()

    assert [line[:19] for line in lines] == [f"2026-01-01 00:00:0{second}" for second in (2, 3, 4)]
    assert all(line.endswith("Broken") for line in lines)


@pytest.mark.parametrize(("deaths", "says_so"), [(99, False), (100, True)])
def test_tail_says_so_where_more_may_have_died_at_once_than_it_shows(queue, looks, deaths, says_so):
    dead_letter("jobs")
    stderr = io.StringIO()
    looks(lambda: [dead_letter("jobs") for _ in range(deaths)], lambda: None)

    call_command("mqlite", "tail", "--dead", stdout=io.StringIO(), stderr=stderr)

    assert ("Only the last 100 dead letters" in stderr.getvalue()) == says_so


def test_tail_of_an_unknown_queue_is_told_at_once(queue, looks):
    for more in ([], ["--dead"]):
        with pytest.raises(CommandError, match="Did you mean 'jobs'"):
            mqlite("tail", "job", *more)


def test_stats_are_watched_until_ctrl_c(queue, looks):
    looks(lambda: Message.objects.enqueue("jobs", 1))
    in_pipe = mqlite("stats", "--watch", 0.1)
    looks(lambda: Message.objects.enqueue("jobs", 1))
    on_terminal = mqlite("stats", "--watch", stdout=Terminal())
    looks(lambda: Message.objects.enqueue("jobs", 1))
    documents = mqlite("stats", "--watch", "--json").splitlines()

    assert in_pipe.count("queue ") == 2
    assert on_terminal.count("\x1b[2J\x1b[H") == 2
    active = [json.loads(each)["queues"][0]["counts"]["active"] for each in documents]
    assert active == [2, 3]


@pytest.mark.parametrize("spelling", ["dead", "dead-lettered", "dead_lettered"])
def test_list_accepts_every_spelling_of_dead_lettered(queue, spelling):
    message = enqueue_and_claim("jobs", 1)
    message.reject("NoStock")

    (found,) = answer("list", "--state", spelling)["messages"]

    assert (found["id"], found["state"]) == (message.pk, "dead_lettered")
