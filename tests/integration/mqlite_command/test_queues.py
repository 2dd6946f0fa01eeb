"""mqlite stats, pause and resume."""

import json

import pytest

from django_mqlite.models import Message, Queue
from tests.support.verbs import dead_letter

from .calls import SLEEP, Terminal, answer, mqlite


def test_stats_are_an_aligned_table_in_pipes_and_on_terminals(queue, make_queue):
    make_queue("a-long-name").pause()
    Message.objects.enqueue("jobs", 1)
    dead_letter("jobs")

    assert mqlite("stats").splitlines() == [
        "queue        active  dead-lettered  oldest due  workers  note",
        "a-long-name       0              0  -                 0  paused",
        "jobs              1              1  0 s               0  -",
    ]
    assert mqlite("stats", stdout=Terminal()) == mqlite("stats")


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
            "limits": dict.fromkeys(
                ("max_in_flight", "in_flight", "rate", "tokens", "next_token_at")
            ),
            "wait": None, "run": None,
        }
    ]  # fmt: skip


def test_stats_and_queues_show_the_limits_of_a_queue(queue, make_queue):
    make_queue("mails", max_in_flight=3, rate="100/min")
    Message.objects.enqueue("mails", 1)
    Message.objects.claim("mails")

    _jobs, mails = answer("stats")["queues"]

    assert mails["limits"] == {
        "max_in_flight": 3, "in_flight": 1, "rate": "100/min", "tokens": 99, "next_token_at": None,
    }  # fmt: skip
    assert mqlite("stats").rstrip().endswith("1 of 3 in flight, rate 100/min: 99 of 100 tokens")
    assert mqlite("queues").splitlines()[2].split()[-2:] == ["3", "100/min"]


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


@pytest.mark.rule("17.9")
def test_queue_shows_its_limits_and_their_use(clock, make_queue):
    make_queue("jobs", max_in_flight=2, rate="3/min")
    Message.objects.enqueue_many("jobs", range(5))
    Message.objects.claim("jobs", limit=2)
    clock.advance(19.6)

    text = mqlite("queues", "jobs")
    document = answer("queues", "jobs")

    assert "  max in flight: 2\n" in text
    assert "  rate: 3/min\n" in text
    assert "  now: 2 of 2 in flight\n  now: rate 3/min: 1 of 3 tokens\n" in text
    assert mqlite("queues").splitlines()[1].split()[:7] == [
        "jobs", "queue", "standard", "30", "s", "10", "2",
    ]  # fmt: skip
    assert (document["max_in_flight"], document["rate"]) == (2, "3/min")
    assert document["limits"] == {
        "max_in_flight": 2, "in_flight": 2, "rate": "3/min", "tokens": 1, "next_token_at": None,
    }  # fmt: skip


def test_queue_without_limits_is_shown_as_unlimited(queue):
    text = mqlite("queues", "jobs")

    assert "  max in flight: unlimited\n" in text
    assert "  rate: unlimited\n" in text
    assert "now:" not in text
    assert set(answer("queues", "jobs")["limits"].values()) == {None}


@pytest.mark.rule("17.9")
def test_why_names_the_limit(clock, make_queue):
    make_queue("jobs", rate="100/min")
    *_, last = Message.objects.enqueue_many("jobs", range(102))
    Message.objects.claim("jobs", limit=100)
    clock.advance(0.2)

    assert "rate 100/min: next token in 0.4 s; 1 other message comes first" in mqlite(
        "why", last.pk
    )
    assert answer("why", last.pk)["facts"]["next_token_at"] == "2026-01-01T00:00:00.600000+00:00"
