"""mqlite health: what is a problem for a monitoring system, and what is not."""

import json

import pytest

from django_mqlite.models import Message, Queue
from django_mqlite.verbs import health as health_verb
from django_mqlite.verbs.health import LARGE_WAL, RESTART_MS, health
from django_mqlite.verbs.workers import LIVE_WITHIN_MS
from tests.support.verbs import claim_one, enqueue_and_claim

from .calls import answer, failed, mqlite

RESTART = RESTART_MS / 1_000
UNSERVED = "Queue jobs has due messages, but no live worker serves it."


def problems():
    return list(health("default").problems)


def test_health_of_an_idle_queue_has_stable_keys(queue):
    document = answer("health")

    assert document.pop("wal_bytes") >= 0
    assert document == {
        "healthy": True,
        "problems": [],
        "oldest_due_age": None,
        "last_poll_age": None,
        "live_workers": 0,
        "retrying": 0,
        "recent_dead_letters": 0,
        "busy_queues": [],
        "paused_schedules": [],
    }
    assert mqlite("health").startswith("healthy\n")


def test_problem_of_a_queue_ends_the_command_with_code_1(queue, clock):
    Message.objects.enqueue("jobs", None)
    clock.advance(16)

    document = json.loads(failed("health", "--json"))
    text = failed("health")

    assert (document["healthy"], document["problems"]) == (False, [UNSERVED])
    assert document["oldest_due_age"] == 16
    assert text.startswith(f"PROBLEM: {UNSERVED}\noldest due message: 16 s ago\n")


@pytest.mark.parametrize(
    ("age", "workers", "problem"),
    [
        (RESTART, [], None),
        (RESTART + 0.001, [], UNSERVED),
        (RESTART + 1, [["more-jobs"]], UNSERVED),
        (RESTART + 1, [[]], UNSERVED),
        (60, [["jobs"]], None),
        (61, [["jobs"]], "Queue jobs has had a due message for 61 s."),
    ],
)
def test_due_message_is_a_problem_after_a_while(queue, clock, start_worker, age, workers, problem):
    Message.objects.enqueue("jobs", None)
    clock.advance(age)
    for queues in workers:
        start_worker(*queues)

    assert problems() == [problem] * bool(problem)


def test_max_age_limits_the_age_of_due_messages(queue, clock, start_worker):
    Message.objects.enqueue("jobs", None)
    start_worker("jobs")
    clock.advance(1)

    assert failed("health", "--max-age=0.9s")
    assert answer("health", "--max-age=1s")["last_poll_age"] == 1


def test_waiting_message_is_no_problem(queue, make_queue, clock):
    make_queue("paused").pause()
    Message.objects.enqueue("paused", None)
    Message.objects.enqueue("jobs", None, delay=7_200)
    clock.advance(3_600)

    assert problems() == []


@pytest.mark.parametrize(
    "leave",
    [
        lambda: enqueue_and_claim("jobs"),
        lambda: Message.objects.enqueue("jobs", None, delay=5),
        lambda: enqueue_and_claim("jobs").abandon(delay=5),
    ],
    ids=["expired lease", "due schedule", "due retry"],
)
def test_message_that_only_a_reaper_can_activate_is_due(queue, clock, leave):
    leave()
    clock.advance(60)

    found = health("default")

    assert found.problems == (UNSERVED,)
    assert found.oldest_due_age >= 30


@pytest.mark.parametrize("served", [False, True], ids=["no worker", "worker"])
@pytest.mark.parametrize("newer", ["higher priority", "retry"])
def test_newer_message_does_not_hide_one_that_starves(queue, clock, start_worker, served, newer):
    Message.objects.enqueue("jobs", None)
    retried = claim_one("jobs", lock_duration=10_000)
    Message.objects.enqueue("jobs", None)
    starved_since = clock.now_ms()
    clock.advance(7_200)
    if newer == "retry":
        retried.abandon(delay=0)
    else:
        Message.objects.enqueue("jobs", None, priority=1)
    if served:
        start_worker("jobs")

    found = health("default")

    assert (len(found.problems), found.oldest_due_age) == (1, 7_200)
    (overview,) = Queue.objects.overview()
    assert overview.stats.due_since_ms == starved_since


def test_large_write_ahead_log_is_a_problem(queue, monkeypatch):
    monkeypatch.setattr(health_verb, "wal_bytes", lambda using: LARGE_WAL)
    assert problems() == []

    monkeypatch.setattr(health_verb, "wal_bytes", lambda using: LARGE_WAL + 1)
    assert problems() == ["The write-ahead log is 134,217,729 bytes long."]


def test_live_workers_are_those_seen_of_late_that_serve_queues(queue, clock, start_worker):
    start_worker()
    start_worker("jobs")
    assert answer("health")["live_workers"] == 1

    clock.advance(LIVE_WITHIN_MS / 1000 + 1)
    assert answer("health")["live_workers"] == 0


def test_retries_and_recent_dead_letters_are_facts_and_no_problems(queue, clock):
    enqueue_and_claim("jobs").reject("Old")
    clock.advance(3_600)
    enqueue_and_claim("jobs").reject("New")
    enqueue_and_claim("jobs").abandon(delay=60)
    Message.objects.enqueue("jobs", None, delay=60)

    document, text = answer("health"), mqlite("health")

    assert (document["retrying"], document["recent_dead_letters"]) == (1, 1)
    assert document["healthy"] is True
    assert "retrying messages: 1\ndead letters in the last hour: 1" in text


def test_queue_whose_workers_are_all_busy_is_named(queue, clock, start_worker):
    start_worker("jobs")
    Message.objects.enqueue("jobs", None)
    claim_one("jobs", worker="serves ('jobs',)", lock_duration=3_600)
    assert answer("health")["busy_queues"] == []

    Message.objects.enqueue("jobs", None)

    assert answer("health")["busy_queues"] == ["jobs"]
    clock.advance(60)
    start_worker("jobs")
    assert problems() == []
    clock.advance(1)
    assert problems() == [
        "Queue jobs has had a due message for 61 s; all 1 slots of its workers are busy."
    ]
    assert "queues whose workers are all busy: jobs\n" in failed("health")


@pytest.mark.parametrize(
    ("leave", "problem"),
    [
        (
            lambda: claim_one("strict").abandon(delay=3_600),
            "Queue strict has messages that wait for #1, which is retried in 58 min 59 s.",
        ),
        (
            lambda: claim_one("strict").defer(),
            "Queue strict has messages that wait for #1, which is deferred.",
        ),
        (lambda: claim_one("strict", lock_duration=3_600), None),
    ],
    ids=["retry", "deferred", "locked"],
)
def test_messages_behind_a_head_that_nothing_works_on_are_a_problem(
    strict_queue, clock, leave, problem
):
    for _ in range(2):
        Message.objects.enqueue("strict", None)
    leave()
    clock.advance(60)
    assert problems() == []

    clock.advance(1)
    assert [text.replace(f"#{first_id()}", "#1") for text in problems()] == [problem] * bool(
        problem
    )


def first_id() -> int:
    return Message.objects.order_by("pk").values_list("pk", flat=True)[0]
