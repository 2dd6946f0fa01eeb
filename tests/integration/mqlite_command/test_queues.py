"""mqlite stats, pause and resume."""

import json

from django_mqlite.models import Message, Queue
from tests.support.verbs import dead_letter

from .calls import SLEEP, Terminal, answer, mqlite


def test_stats_are_an_aligned_table_in_pipes_and_on_terminals(queue, make_queue):
    make_queue("a-long-name").pause()
    Message.objects.enqueue("jobs", 1)
    dead_letter("jobs")

    text = mqlite("stats")

    heads, *rows = text.splitlines()
    assert [row.split() for row in rows] == [
        ["a-long-name", "0", "0", "0", "0", "0", "0", "-", "0", "0", "0", "yes"],
        ["jobs", "1", "0", "0", "0", "0", "1", "2026-01-01", "00:00:00", "0", "0", "0", "no"],
    ]
    assert heads.split("  ")[0] == "queue"
    assert rows[0].index(" yes") == rows[1].index(" no") == heads.index(" paused")
    assert mqlite("stats", stdout=Terminal()) == text


def test_stats_have_stable_keys_in_json(queue, start_worker):
    Message.objects.enqueue("jobs", 1)
    start_worker("jobs")

    counts = dict.fromkeys(("locked", "deferred", "scheduled", "completed", "dead_lettered"), 0)
    assert answer("stats")["queues"] == [
        {
            "queue": "jobs",
            "paused": False,
            "counts": {"active": 1, **counts},
            "retrying": 0, "blocked": 0, "blocked_by": None,
            "due_since": "2026-01-01T00:00:00+00:00", "workers": 1, "slots": 1, "busy": 0,
            "completed_last_hour": 0, "failed_last_hour": 0, "dead_letters_last_hour": 0,
            "wait": None, "run": None,
        }
    ]  # fmt: skip


def test_watched_stats_are_refreshed_until_ctrl_c(queue, monkeypatch):
    def pause(seconds):
        if Message.objects.count() % 2:
            Message.objects.enqueue("jobs", 2)
            raise KeyboardInterrupt
        Message.objects.enqueue("jobs", 1)

    monkeypatch.setattr(SLEEP, pause)

    in_pipe = mqlite("stats", "--watch", 0.1)
    on_terminal = mqlite("stats", "--watch", stdout=Terminal())
    documents = map(json.loads, mqlite("stats", "--watch", "--json").splitlines())

    assert in_pipe.count("queue ") == 2
    assert "\x1b" not in in_pipe
    assert on_terminal.count("\x1b[2J\x1b[H") == 2
    assert [document["queues"][0]["counts"]["active"] for document in documents] == [4, 5]


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
    assert not Queue.objects.filter(paused=True).exists()
