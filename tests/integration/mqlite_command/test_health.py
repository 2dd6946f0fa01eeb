"""`mqlite health`: what a monitoring system is told, and when it is that something is wrong."""

import json

import pytest
from django.core.management import call_command

from django_mqlite import doctor
from django_mqlite.doctor import LARGE_WAL, RESTART_MS
from django_mqlite.models import Message, Queue
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.workers import LIVE_WITHIN_MS, register
from tests.support.verbs import claim_one, enqueue_and_claim

KEYS = {"healthy", "problems", "oldest_due_age", "last_poll_age", "live_workers", "wal_bytes"}


def health(capsys, *arguments) -> tuple[int, dict]:
    """The exit code and the answer."""
    try:
        call_command("mqlite", "health", "--json", *arguments)
    except SystemExit as ended:
        code = ended.code
    else:
        code = 0
    return code, json.loads(capsys.readouterr().out)


def live_worker(*queues):
    register(
        "default",
        WorkerRecord(
            worker=f"serves {queues}",
            host="host",
            boot_id="boot",
            pid_namespace=1,
            pid=1,
            process_started_at=0.0,
            queues=queues,
            slots=1,
            in_flight=0,
            started_at=0,
        ),
    )


def enqueue():
    Message.objects.enqueue("jobs", None)


def test_nothing_due_is_healthy_also_without_a_worker(queue, capsys):
    code, answer = health(capsys)

    assert code == 0
    assert set(answer) == KEYS
    assert answer["healthy"] is True
    assert answer["problems"] == []
    assert answer["live_workers"] == 0
    assert answer["oldest_due_age"] is answer["last_poll_age"] is None
    assert answer["wal_bytes"] >= 0


def test_a_message_due_and_no_worker_is_ill_once_a_restart_would_be_over(queue, clock, capsys):
    enqueue()
    clock.advance(RESTART_MS / 1000)
    assert health(capsys)[0] == 0

    clock.advance(0.001)
    code, answer = health(capsys)

    assert code == 1
    assert answer["healthy"] is False
    assert answer["problems"] == ["Queue jobs has due messages, but no live worker serves it."]
    assert answer["oldest_due_age"] == pytest.approx(RESTART_MS / 1000 + 0.001)


def test_a_worker_of_other_queues_does_not_help(queue, clock, capsys):
    enqueue()
    clock.advance(RESTART_MS / 1000 + 1)
    live_worker("more-jobs")

    code, answer = health(capsys)

    assert (code, answer["live_workers"]) == (1, 1)


def test_a_message_that_is_due_for_too_long_is_ill_although_a_worker_lives(queue, clock, capsys):
    enqueue()
    clock.advance(60)
    live_worker("jobs")
    assert health(capsys)[0] == 0
    assert health(capsys, "--max-age=59")[0] == 1

    clock.advance(1)
    code, answer = health(capsys)

    assert code == 1
    assert answer["problems"] == ["Queue jobs has had a due message for 61 s."]
    assert answer["last_poll_age"] == 1


@pytest.mark.parametrize("served", [False, True], ids=["no worker", "worker"])
@pytest.mark.parametrize("first_in_line", ["a higher priority", "one that failed a moment ago"])
def test_fresh_messages_do_not_hide_one_that_starves(queue, clock, capsys, served, first_in_line):
    if first_in_line == "one that failed a moment ago":
        enqueue()
        failing = claim_one("jobs", lock_duration=10_000)
    enqueue()
    starved_at = clock.now_ms()
    clock.advance(7_200)
    if first_in_line == "one that failed a moment ago":
        failing.abandon(delay=0)
    else:
        Message.objects.enqueue("jobs", None, priority=1)
    if served:
        live_worker("jobs")

    code, answer = health(capsys)

    assert (code, answer["oldest_due_age"]) == (1, 7_200)
    (overview,) = Queue.objects.overview()
    assert overview.stats.due_since_ms == starved_at


def test_a_write_ahead_log_that_is_not_emptied_is_a_problem(queue, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "wal_bytes", lambda using: LARGE_WAL)
    assert health(capsys)[0] == 0

    monkeypatch.setattr(doctor, "wal_bytes", lambda using: LARGE_WAL + 1)
    code, answer = health(capsys)

    assert code == 1
    assert answer["problems"] == ["The write-ahead log is 134,217,729 bytes long."]


def test_a_worker_that_was_not_seen_of_late_does_not_count(queue, clock, capsys):
    live_worker("jobs")
    clock.advance(LIVE_WITHIN_MS / 1000 + 1)

    assert health(capsys)[1]["live_workers"] == 0


def test_a_reaper_alone_is_no_worker(queue, clock, capsys):
    live_worker()

    assert health(capsys)[1]["live_workers"] == 0


def test_a_paused_queue_is_somebodys_wish(queue, clock, capsys):
    enqueue()
    queue.pause()
    clock.advance(3_600)

    assert health(capsys)[0] == 0


def test_what_is_not_due_makes_nobody_ill(queue, clock, capsys):
    Message.objects.enqueue("jobs", None, delay=7_200)
    clock.advance(3_600)

    assert health(capsys)[0] == 0


def test_people_are_told_the_same_in_words(queue, clock, capsys):
    enqueue()
    clock.advance(100)

    with pytest.raises(SystemExit):
        call_command("mqlite", "health")

    out = capsys.readouterr().out
    assert "PROBLEM: Queue jobs has due messages" in out
    assert "oldest due message: 100.0 s ago" in out


@pytest.mark.parametrize("left", ["an expired lease", "a due schedule", "a rest after a failure"])
def test_what_only_a_reaper_would_make_claimable_is_due_as_well(queue, clock, capsys, left):
    match left:
        case "an expired lease":
            enqueue_and_claim("jobs")
        case "a due schedule":
            Message.objects.enqueue("jobs", None, delay=5)
        case _:
            enqueue_and_claim("jobs").abandon(delay=5)
    clock.advance(60)

    code, answer = health(capsys)

    assert code == 1
    assert "no live worker" in answer["problems"][0]
    assert answer["oldest_due_age"] >= 30
