"""mqlite list, show and why."""

import json

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import Message, Queue
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim

from .calls import answer, mqlite

# list


def test_list_is_a_table_with_the_newest_first(queue):
    Message.objects.enqueue("jobs", 1, subject="first", group_id="a")
    dead_letter("jobs", 2, priority=1)

    assert mqlite("list").splitlines() == [
        "id  queue  state          age  tries  group  subject  error",
        "2   jobs   dead-lettered  0 s      1  -      -        Broken",
        "1   jobs   active         0 s      0  a      first    -",
    ]


def test_list_has_stable_keys_in_json_and_reads_no_body(queue):
    columns = {"subject": "s", "group_id": "a", "message_id": "m", "correlation_id": "c"}
    message = Message.objects.enqueue("jobs", 1, delay=5, **columns)

    with CaptureQueriesContext(connection) as queries:
        document = answer("list", "jobs", "--state", "scheduled")

    assert not any('"body"' in query["sql"] for query in queries)
    times = {
        "enqueued_at": "2026-01-01T00:00:00+00:00",
        "visible_at": "2026-01-01T00:00:05+00:00",
        "locked_until": None,
        "finished_at": None,
    }
    other = {"state": "scheduled", "priority": 0, "delivery_count": 0, "dead_letter_reason": None}
    other |= {"error_class": None, "blocked": False}
    assert document == {
        "messages": [{"id": message.pk, "queue": "jobs", **columns, **times, **other}],
        "next": None,
    }


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ((), [1, 2, 3, 4]),
        (("jobs",), [1, 2, 3]),
        (("--group", "a"), [2]),
        (("--search", "order"), [1, 2, 3]),
        (("--state", "locked"), []),
        *((("--state", name), [4]) for name in ("dead", "dead-lettered", "dead_lettered")),
    ],
)
def test_list_options_select_messages(queue, make_queue, options, ids):
    make_queue("others")
    Message.objects.enqueue("jobs", 1, subject="order 1")
    Message.objects.enqueue("jobs", 2, subject="order 2", group_id="a")
    Message.objects.enqueue("jobs", 3, subject="order 3")
    dead_letter("others")

    assert sorted(message["id"] for message in answer("list", *options)["messages"]) == ids


def test_list_pages_follow_each_other(queue):
    Message.objects.enqueue_many("jobs", range(5))
    ids, after = [], []

    for _ in range(3):
        page = answer("list", "--limit", 2, *after)
        ids += [message["id"] for message in page["messages"]]
        after = ["--after", page["next"]]

    assert (ids, page["next"]) == ([5, 4, 3, 2, 1], None)


# show and why


def test_why_is_a_sentence_or_a_code_with_facts(queue):
    message = Message.objects.enqueue("jobs", 1, delay=90)

    text = "is not due before 00:01:30 (in 1 min 30 s)"
    assert mqlite("why", message.pk) == f"#{message.pk}: {text}\n"
    assert answer("why", message.pk) == {
        "id": message.pk,
        "code": "not_due",
        "text": text,
        "facts": {
            "id": message.pk, "queue": "jobs", "state": "scheduled", "delivery_count": 0,
            "max_delivery_count": 10, "paused": False, "last_error": None,
            "visible_at": "2026-01-01T00:01:30+00:00",
        },
    }  # fmt: skip


def test_show_has_everything_but_the_lock_token(queue):
    Message.objects.enqueue(
        "jobs", {"order": 1}, subject="s", properties={"k": "v"}, max_delivery_count=5
    )
    claim_one("jobs", worker="host-a:4711").abandon(delay=0, error=ValueError("boom"))
    message = claim_one("jobs", worker="host-a:4711")

    text = mqlite("show", message.pk)
    document = answer("show", message.pk)

    assert text.startswith(
        f"#{message.pk}: locked by host-a:4711 until 00:00:30 (in 30 s), delivery 2 of 5\n"
        "  queue: jobs\n"
    )
    assert '\n  property k: v\nbody, 11 bytes:\n  {\n    "order": 1\n  }\n' in text
    assert "delivery 1 failed, host-a:4711: builtins.ValueError: boom:\n" in text
    assert document["why"]["code"] == "leased"
    assert document["data"] == {"order": 1}
    assert (document["locked_by"], document["max_delivery_count"]) == ("host-a:4711", 5)
    assert document["locked_until"] == "2026-01-01T00:00:30+00:00"
    assert message.lock_token not in text + json.dumps(document)


def test_show_has_the_progress(queue):
    message = enqueue_and_claim("jobs")
    message.set_progress(0.4, "page 12 of 30")

    assert "  progress: 40 %, page 12 of 30\n" in mqlite("show", message.pk)
    assert answer("show", message.pk)["progress"]["fraction"] == 0.4


def test_show_of_a_completed_message_has_no_lease(queue):
    Queue.objects.configure("jobs", retain_completed=60)
    Message.objects.enqueue("jobs", 1)
    message = claim_one("jobs", worker="host-a:4711")
    message.complete()

    text = mqlite("show", message.pk)

    assert "  completed by: host-a:4711\n" in text
    assert "locked" not in text


def test_show_of_a_deleted_message_explains_its_end(queue):
    message = enqueue_and_claim("jobs")
    message.complete()

    with pytest.raises(CommandError, match=rf"^#{message.pk}: was completed at 00:00:00"):
        mqlite("show", message.pk)


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"\x00\xff", None, "body, 2 bytes:\n  00 ff\n"),
        (b"", None, "body, 0 bytes\n"),
        (b"{", "application/json", "body, 1 bytes:\n  7b\n"),
        ("line\n\x1b[2J", None, "body, 9 bytes:\n  line\n  \\x1b[2J\n"),
        ("x" * 5_000, None, "truncated to 4,000 characters:\n  " + "x" * 4_000 + "\n"),
    ],
    ids=["bytes", "empty", "broken", "escapes", "long"],
)
def test_show_prints_a_body_of_any_kind(queue, body, content_type, text):
    message = Message.objects.enqueue("jobs", body, content_type=content_type)

    assert text in mqlite("show", message.pk)


@pytest.mark.parametrize("command", ["show", "why"])
def test_message_id_shared_by_several_messages_is_refused(make_queue, command):
    for name in "abcdefghijk":
        make_queue(name)
        Message.objects.enqueue(name, 1, message_id="order-17")
        if name == "a":
            assert answer(command, "order-17")["id"] == 1
        if name == "b":
            with pytest.raises(CommandError, match=r"#1 of a, #2 of b\. Pass a sequence number"):
                mqlite(command, "order-17")

    with pytest.raises(CommandError, match=r"#1 of a, .*, #10 of j, …\. Pass a sequence number"):
        mqlite(command, "order-17")
