"""explain() has one reason for every state and cause, and returns its facts as JSON."""

import json
import re

import pytest
from django.utils.translation import override

from django_mqlite import handler
from django_mqlite.models import DeadLetter, Message
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs import explain
from django_mqlite.verbs.workers import LIVE_WITHIN_MS, register
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim, reap

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def in_utc(settings):
    settings.TIME_ZONE = "UTC"


@pytest.fixture
def has_handler(monkeypatch):
    monkeypatch.setattr("django_mqlite.handlers._handlers", {})
    handler("jobs")(print)


def enqueue(queue="jobs", data=None, **options):
    return Message.objects.enqueue(queue, data, **options)


def start_worker(name="host-a:4711", *queues, reaps=True, slots=4):
    record = WorkerRecord(
        worker=name, host="host-a", boot_id="boot", pid_namespace=1, pid=4711,
        process_started_at=0.0, queues=queues, slots=slots, in_flight=0, started_at=0, reaps=reaps,
    )  # fmt: skip
    register("default", record)


# A message in each state: how it got there, the code, the text, and facts.


def claimed_by_a_live_worker(clock):
    start_worker("host-a:4711", "jobs")
    clock.advance(3)
    enqueue(max_delivery_count=5)
    return claim_one("jobs", worker="host-a:4711", lock_duration=14)


def expired_lease(clock):
    enqueue()
    message = claim_one("jobs", worker="w")
    clock.advance(30)
    return message


def backing_off(clock):
    message = enqueue_and_claim("jobs", max_delivery_count=5)
    message.abandon(delay=14, error=ValueError("no stock: 100%"))
    return message


def backing_off_without_an_error(clock):
    message = enqueue_and_claim("jobs")
    message.abandon(delay=14)
    return message


def due(clock):
    message = enqueue(delay=10)
    clock.advance(100)
    return message


def redriven_at_a_rate(clock):
    letters = [dead_letter("jobs") for _ in range(2)]
    DeadLetter.objects.redrive([letter.pk for letter in letters], rate=0.1)
    return letters[1]


def dead(clock):
    message = enqueue_and_claim("jobs")
    message.reject("UnknownArticle", "no article 17")
    clock.advance(86_400)
    return message


def completed(clock):
    message = enqueue_and_claim("kept")
    message.complete()
    return message


def completed_and_gone(clock):
    message = enqueue_and_claim("jobs")
    message.complete()
    clock.advance(60)
    return message


def purged(clock):
    enqueue()
    clock.advance(10)
    letter = dead_letter("jobs", priority=1)
    clock.advance(10)
    enqueue()
    DeadLetter.objects.purge([letter.pk])
    return letter


def claimed_and_deleted(clock):
    message = enqueue(priority=1)
    Message.objects.claim_and_delete("jobs")
    return message


def beyond_its_time_to_live(clock, **options):
    message = enqueue(ttl=5, **options)
    clock.advance(10)
    return message


def deferred_beyond_its_time_to_live(clock):
    message = enqueue_and_claim("kept", ttl=5)
    message.defer()
    clock.advance(10)
    return message


def behind_a_deferred_head(clock):
    enqueue_and_claim("groups", 1, group_id="customer-7").defer()
    return enqueue("groups", group_id="customer-7")


def behind_the_head_of_a_strict_queue(clock):
    enqueue_and_claim("strict")
    return enqueue("strict")


def due_behind_a_scheduled_head(clock):
    enqueue("groups", group_id="a", delay=90)
    message = enqueue("groups", group_id="a", delay=10)
    assert message.explain().code == "not_due"
    clock.advance(20)
    return message


def after_a_lost_delivery(clock):
    message = expired_lease(clock)
    reap()
    return message


CASES = [
    (
        claimed_by_a_live_worker,
        "leased",
        (
            "locked by host-a:4711 until 00:00:17 (in 14 s), delivery 1 of 5; that worker was last "
            "seen 3 s ago"
        ),
        {"worker_lives": True, "locked_until": "2026-01-01T00:00:17+00:00"},
    ),
    (
        lambda clock: enqueue(delay=7_500),
        "not_due",
        "is not due before 02:05:00 (in 2 h 5 min)",
        {"visible_at": "2026-01-01T02:05:00+00:00"},
    ),
    (
        due,
        "due",
        (
            "has been due since 00:00:10 (1 min 30 s ago) and waits for the reaper; no reaper is "
            "running…"
        ),
        {"reaper_runs": False},
    ),
    (
        backing_off,
        "backing_off",
        "is retried at 00:00:14 (in 14 s): delivery 1 of 5 failed with ValueError: no stock: 100%",
        {"last_error": "ValueError: no stock: 100%"},
    ),
    (backing_off_without_an_error, "backing_off", "…failed with no recorded error", {}),
    (after_a_lost_delivery, "no_worker", "no live worker…", {}),
    (redriven_at_a_rate, "redrive_paced", "…", {}),
    (
        dead,
        "dead_lettered",
        "became a dead letter at 2026-01-01 00:00:00 (1 d ago): UnknownArticle, no article 17",
        {"reason": "UnknownArticle"},
    ),
    (
        completed,
        "completed",
        "was completed at 00:00:00 (0 s ago) and is kept until 00:01:00 (in 1 min)",
        {},
    ),
    (
        completed_and_gone,
        "completed_and_gone",
        "was completed at 00:00:00 (1 min ago), and queue jobs does not keep completed messages",
        {"queue": "jobs"},
    ),
    (
        purged,
        "gone",
        "…enqueued after 00:00:00 (20 s ago) and before 00:00:20 (0 s ago)…",
        {
            "enqueued_after": "2026-01-01T00:00:00+00:00",
            "enqueued_before": "2026-01-01T00:00:20+00:00",
        },
    ),
    (claimed_and_deleted, "gone", "…it was enqueued before 00:00:00…", {}),
    (
        beyond_its_time_to_live,
        "expired",
        "…so it becomes a dead letter; no reaper is running…",
        {},
    ),
    (
        lambda clock: beyond_its_time_to_live(clock, delay=1),
        "expired",
        "…so it becomes a dead letter; no reaper is running…",
        {},
    ),
    (deferred_beyond_its_time_to_live, "expired", "…so it is deleted…", {}),
    (
        behind_a_deferred_head,
        "behind_head",
        (
            "waits behind #1, which is deferred, in group customer-7; #1: was deferred, and waits "
            "until it is activated or claimed with claim_deferred()"
        ),
        {"head": 1, "head_code": "deferred"},
    ),
    (
        behind_the_head_of_a_strict_queue,
        "behind_head",
        (
            "waits behind #1, which is locked, in queue strict, which is strict_fifo; #1: locked "
            "by an unnamed worker until 00:00:30 (in 30 s), delivery 1 of 10…"
        ),
        {"head_code": "leased"},
    ),
    (due_behind_a_scheduled_head, "behind_head", "…", {"head_code": "not_due"}),
]


@pytest.mark.usefixtures("queue", "group_queue", "strict_queue", "has_handler")
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_message_is_explained_by_its_state(clock, make_queue, case):
    """In the expected text, `…` stands for anything."""
    make_queue("kept", retain_completed=60, dead_letter_on_expire=False)
    make, code, text, facts = case
    message = make(clock)

    why = message.explain()

    assert why.code == code
    assert re.fullmatch(re.escape(text).replace("…", ".*"), why.text)
    assert {name: why.facts[name] for name in facts} == facts
    assert why.facts["id"] == message.pk
    assert json.loads(json.dumps(why.facts)) == why.facts


def test_lost_delivery_is_the_last_error(queue, clock):
    assert after_a_lost_delivery(clock).explain().facts["last_error"].startswith("LeaseExpired: ")


@pytest.mark.parametrize("id", [0, -3, 10**15])
def test_unknown_id_was_never_enqueued(queue, id):
    newest = enqueue()

    why = Message.objects.explain(id)

    assert why.code == "never_enqueued"
    assert why.text == f"there has never been a message #{id}; the last one is #{newest.pk}"


# Workers and reapers


def test_message_without_a_live_worker_is_explained(queue, clock, has_handler):
    start_worker("w", "jobs")
    message = enqueue()
    clock.advance(LIVE_WITHIN_MS / 1000)
    assert message.explain().code == "claimable"

    clock.advance(0.001)

    why = message.explain()
    assert why.code == "no_worker"
    assert why.text == "no live worker serves queue jobs: start `manage.py runworker`"


def test_message_without_a_handler_is_explained(queue, monkeypatch):
    monkeypatch.setattr("django_mqlite.handlers._handlers", {})

    why = enqueue().explain()

    assert why.code == "no_handler"
    assert why.text == "no live worker serves queue jobs, and no handler is registered for it"


def test_message_is_explained_without_importable_handlers(queue, monkeypatch):
    def fail():
        raise ModuleNotFoundError("stripe")

    monkeypatch.setattr(explain, "get_handlers", fail)

    assert enqueue().explain().code == "no_worker"


def test_claimable_message_has_its_place_and_workers(queue):
    start_worker("one", "jobs", "more")
    start_worker("two", "jobs")
    start_worker("three", "more")
    for priority in (0, -1, 7):
        enqueue(priority=priority)
    message = enqueue()

    why = message.explain()

    assert why.code == "claimable"
    assert (why.facts["ahead"], why.facts["workers"], why.facts["slots"]) == (2, 2, 8)
    assert (
        why.text == "can be claimed after 2 other messages; 2 workers with 8 slots serve its queue"
    )
    queue.pause()
    why = message.explain()
    assert (why.code, why.text) == ("paused", "its queue jobs is paused")
    assert why.facts["paused"] is True


def test_message_waits_for_a_slot_while_all_are_busy(queue, make_queue, clock):
    make_queue("more")
    start_worker("one", "jobs", "more", slots=2)
    start_worker("idle", "more", slots=8)
    longest = enqueue("more")
    Message.objects.claim("more", worker="one")
    clock.advance(5)
    enqueue()
    Message.objects.claim("jobs", worker="one")
    message = enqueue()

    why = message.explain()

    assert why.code == "no_free_slot"
    assert (why.facts["slots"], why.facts["longest"]) == (2, longest.pk)
    assert why.text == (
        "waits for a free slot: all 2 slots of the 1 worker that serves its queue are busy, the "
        f"longest with #{longest.pk} for 5 s"
    )
    longest.refresh_from_db()
    Message.objects.release(longest.pk, seen=longest.lease_fingerprint)
    assert message.explain().code == "claimable"


def test_place_in_a_long_queue_is_counted_to_a_limit(queue):
    start_worker("one", "jobs")
    Message.objects.enqueue_many("jobs", range(1_001))

    assert "after 1000+ other messages" in enqueue().explain().text


@pytest.mark.parametrize(
    ("worker", "lives"), [("host-a:4711", False), ("a script", None)], ids=["dead", "unknown"]
)
def test_lease_of_a_worker_that_is_not_live_is_explained(queue, clock, worker, lives):
    start_worker("host-a:4711", "jobs")
    clock.advance(LIVE_WITHIN_MS / 1000 + 1)
    enqueue()

    assert claim_one("jobs", worker=worker).explain().facts["worker_lives"] is lives


@pytest.mark.parametrize(
    ("reapers", "text"),
    [((), "no reaper is running: start"), (("reaper",), "a reaper is running")],
    ids=["no reaper", "a reaper"],
)
def test_expired_lease_waits_for_a_reaper(queue, clock, reapers, text):
    message = expired_lease(clock)
    start_worker("w", "jobs", reaps=False)
    for name in reapers:
        start_worker(name)

    why = message.explain()

    assert why.code == "lease_expired"
    assert (
        "its lease, held by w, expired at 00:00:30 (0 s ago) and waits for the reaper" in why.text
    )
    assert text in why.text
    assert why.facts["reaper_runs"] is bool(reapers)


def test_blocked_message_whose_head_has_just_ended_is_claimable(group_queue, monkeypatch):
    enqueue_and_claim("groups", group_id="a")
    message = enqueue("groups", group_id="a")
    monkeypatch.setattr(explain, "_explain_head", lambda *_: None)

    assert message.explain().code == "claimable"


def test_language_without_a_translation_gets_english(queue):
    with override("fi"):
        assert "is not due before" in enqueue(delay=5).explain().text
