"""explain() has one reason for every state and cause, and tells what it was made from."""

import json

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


def enqueue(queue="jobs", data=None, **options):
    return Message.objects.enqueue(queue, data, **options)


def worker(name="host-a:4711", *queues, reaps=True, slots=4):
    register(
        "default",
        WorkerRecord(
            worker=name,
            host="host-a",
            boot_id="boot",
            pid_namespace=1,
            pid=4711,
            process_started_at=0.0,
            queues=queues,
            slots=slots,
            in_flight=0,
            started_at=0,
            reaps=reaps,
        ),
    )


@pytest.fixture
def has_handler(monkeypatch):
    monkeypatch.setattr("django_mqlite.handlers._handlers", {})
    handler("jobs")(print)


def test_a_message_that_nobody_serves_says_so(queue, has_handler):
    why = enqueue().explain()

    assert why.code == "no_worker"
    assert why.text == "no live worker serves queue jobs: start `manage.py runworker`"


def test_a_message_without_a_handler_says_so(queue, monkeypatch):
    monkeypatch.setattr("django_mqlite.handlers._handlers", {})

    why = enqueue().explain()

    assert why.code == "no_handler"
    assert why.text == "no live worker serves queue jobs, and no handler is registered for it"


def test_a_worker_that_was_not_seen_of_late_serves_nobody(queue, clock, has_handler):
    worker("w", "jobs")
    message = enqueue()
    clock.advance(LIVE_WITHIN_MS / 1000)
    assert message.explain().code == "claimable"

    clock.advance(0.001)

    assert message.explain().code == "no_worker"


def test_a_claimable_message_tells_its_place_and_who_serves(queue):
    worker("one", "jobs", "more")
    worker("two", "jobs")
    worker("three", "more")
    enqueue()
    enqueue(priority=-1)
    enqueue(priority=7)
    message = enqueue()

    why = message.explain()

    assert why.code == "claimable"
    assert (why.facts["ahead"], why.facts["workers"], why.facts["slots"]) == (2, 2, 8)
    assert why.text == (
        "can be claimed after 2 other messages; 2 workers with 8 slots serve its queue"
    )


def test_a_place_far_back_is_not_counted_to_the_end(queue):
    worker("one", "jobs")
    Message.objects.enqueue_many("jobs", range(1_001))

    assert "after 1000+ other messages" in enqueue().explain().text


def test_a_paused_queue_is_the_reason_whoever_serves_it(queue):
    worker("w", "jobs")
    message = enqueue()
    queue.pause()

    why = message.explain()

    assert (why.code, why.text) == ("paused", "its queue jobs is paused")
    assert why.facts["paused"] is True


def test_behind_a_deferred_head_it_says_which_and_why_that_one_waits(group_queue):
    head = enqueue_and_claim("groups", 1, group_id="customer-7")
    head.defer()
    message = enqueue("groups", group_id="customer-7")

    why = message.explain()

    assert why.code == "behind_head"
    assert why.text == (
        f"waits behind #{head.pk}, which is deferred, in group customer-7; #{head.pk}: was "
        "deferred, and waits until claim_deferred() claims it by its id"
    )
    assert why.facts["head"] == head.pk
    assert why.facts["head_code"] == "deferred"


def test_in_a_strict_queue_the_line_is_the_queue(strict_queue):
    head = enqueue_and_claim("strict")

    why = enqueue("strict").explain()

    assert why.text.startswith(
        f"waits behind #{head.pk}, which is locked, in queue strict, which is strict_fifo; "
        f"#{head.pk}: locked by an unnamed worker until 00:00:30 (in 30 s), delivery 1 of 10"
    )


def test_a_lease_tells_who_until_when_and_which_delivery(queue, clock):
    worker("host-a:4711", "jobs")
    clock.advance(3)
    enqueue(max_delivery_count=5)
    message = claim_one("jobs", worker="host-a:4711", lock_duration=14)

    why = message.explain()

    assert why.code == "leased"
    assert why.text == (
        "locked by host-a:4711 until 00:00:17 (in 14 s), delivery 1 of 5; that worker was last "
        "seen 3 s ago"
    )
    assert why.facts["worker_lives"] is True
    assert why.facts["locked_until"] == "2026-01-01T00:00:17+00:00"


def test_a_holder_that_was_not_seen_of_late_does_not_live_and_a_stranger_is_unknown(queue, clock):
    worker("host-a:4711", "jobs")
    clock.advance(LIVE_WITHIN_MS / 1000 + 1)
    enqueue()
    enqueue()
    of_dead = claim_one("jobs", worker="host-a:4711")
    of_stranger = claim_one("jobs", worker="a script")

    assert of_dead.explain().facts["worker_lives"] is False
    assert of_stranger.explain().facts["worker_lives"] is None


@pytest.mark.parametrize(
    ("reapers", "said"),
    [((), "no reaper is running: start"), (("reaper",), "a reaper is running")],
    ids=["no reaper", "a reaper"],
)
def test_an_expired_lease_waits_for_the_reaper_and_says_whether_one_runs(
    queue, clock, reapers, said
):
    enqueue()
    message = claim_one("jobs", worker="w")
    clock.advance(queue.lock_duration)
    worker("w", "jobs", reaps=False)
    for name in reapers:
        worker(name)

    why = message.explain()

    assert why.code == "lease_expired"
    assert (
        "its lease, held by w, expired at 00:00:30 (0 s ago) and waits for the reaper" in why.text
    )
    assert said in why.text
    assert why.facts["reaper_runs"] is bool(reapers)


def test_a_scheduled_message_says_when_it_is_due(queue, clock):
    why = enqueue(delay=7_500).explain()

    assert (why.code, why.text) == ("not_due", "is not due before 02:05:00 (in 2 h 5 min)")
    assert why.facts["visible_at"] == "2026-01-01T02:05:00+00:00"


def test_a_schedule_that_is_over_waits_for_the_reaper(queue, clock):
    message = enqueue(delay=10)
    clock.advance(100)

    why = message.explain()

    assert why.code == "due"
    assert why.text.startswith("has been due since 00:00:10 (1 min 30 s ago) and waits for the")


def test_a_due_schedule_behind_a_head_waits_for_that_one(group_queue, clock):
    enqueue("groups", group_id="a", delay=90)
    message = enqueue("groups", group_id="a", delay=10)
    assert message.explain().code == "not_due"

    clock.advance(20)

    assert message.explain().facts["head_code"] == "not_due"


def test_backing_off_names_the_delivery_and_the_error(queue, clock):
    message = enqueue_and_claim("jobs", max_delivery_count=5)
    message.abandon(delay=14, error=ValueError("no stock: 100%"))

    why = message.explain()

    assert why.code == "backing_off"
    assert why.text == (
        "is retried at 00:00:14 (in 14 s): delivery 1 of 5 failed with ValueError: no stock: 100%"
    )
    assert why.facts["last_error"] == "ValueError: no stock: 100%"


def test_a_failure_without_an_error_says_that_none_was_given(queue):
    message = enqueue_and_claim("jobs")
    message.abandon(delay=14)

    assert message.explain().text.endswith("failed with no recorded error")


def test_a_redriven_message_with_a_rate_is_not_taken_for_one_that_backs_off(queue):
    letters = [dead_letter("jobs") for _ in range(2)]
    DeadLetter.objects.redrive([letter.pk for letter in letters], rate=0.1)

    assert letters[1].explain().code == "redrive_paced"


def test_a_dead_letter_says_since_when_and_of_what(queue, clock):
    message = enqueue_and_claim("jobs")
    message.reject("UnknownArticle", "no article 17")
    clock.advance(86_400)

    why = message.explain()

    assert why.code == "dead_lettered"
    assert why.text == (
        "became a dead letter at 2026-01-01 00:00:00 (1 d ago): UnknownArticle, no article 17"
    )
    assert why.facts["reason"] == "UnknownArticle"


def test_a_completed_message_that_is_kept_says_until_when(make_queue, clock):
    make_queue("kept", retain_completed=60)
    message = enqueue_and_claim("kept")
    message.complete()

    why = message.explain()

    assert why.code == "completed"
    assert why.text == "was completed at 00:00:00 (0 s ago) and is kept until 00:01:00 (in 1 min)"


def test_a_completed_message_that_is_gone_is_known_by_its_receipt(queue, clock):
    message = enqueue_and_claim("jobs")
    message.complete()
    clock.advance(60)

    why = message.explain()

    assert why.code == "completed_and_gone"
    assert why.text == (
        "was completed at 00:00:00 (1 min ago), and queue jobs does not keep completed messages"
    )
    assert why.facts["queue"] == "jobs"


def test_of_a_purged_message_its_neighbours_tell_the_time(queue, clock):
    enqueue()
    clock.advance(10)
    letter = dead_letter("jobs", priority=1)
    clock.advance(10)
    enqueue()
    DeadLetter.objects.purge([letter.pk])

    why = letter.explain()

    assert why.code == "gone"
    assert "enqueued after 00:00:00 (20 s ago) and before 00:00:20 (0 s ago)" in why.text
    assert why.facts["enqueued_after"] == "2026-01-01T00:00:00+00:00"
    assert why.facts["enqueued_before"] == "2026-01-01T00:00:20+00:00"


def test_without_neighbours_it_was_enqueued_before_now(queue, clock):
    (message,) = [enqueue(priority=1)]
    Message.objects.claim_and_delete("jobs")

    assert "it was enqueued before 00:00:00" in message.explain().text


@pytest.mark.parametrize("id", [0, -3, 10**15])
def test_an_id_that_never_was_is_told_from_one_that_is_gone(queue, id):
    newest = enqueue()

    why = Message.objects.explain(id)

    assert why.code == "never_enqueued"
    assert why.text == f"there has never been a message #{id}; the last one is #{newest.pk}"


@pytest.mark.parametrize("options", [{}, {"delay": 1}], ids=["active", "scheduled"])
def test_a_time_to_live_that_is_over_waits_for_the_reaper(queue, clock, options):
    message = enqueue(ttl=5, **options)
    clock.advance(10)

    why = message.explain()

    assert why.code == "expired"
    assert "so it becomes a dead letter; no reaper is running" in why.text


def test_a_deferred_message_whose_time_to_live_is_over_is_discarded(make_queue, clock):
    make_queue("news", dead_letter_on_expire=False)
    message = enqueue_and_claim("news", ttl=5)
    message.defer()
    clock.advance(10)

    assert "so it is deleted" in message.explain().text


def test_the_head_that_has_gone_meanwhile_lets_it_pass(group_queue, monkeypatch):
    enqueue_and_claim("groups", group_id="a")
    message = enqueue("groups", group_id="a")
    monkeypatch.setattr(explain, "_explain_head", lambda *_: None)

    assert message.explain().code == "claimable"


def test_the_facts_are_json(queue, clock):
    messages = [
        enqueue(),
        enqueue(delay=5),
        enqueue_and_claim("jobs", priority=9),
        dead_letter("jobs", priority=9),
    ]

    for message in messages:
        facts = message.explain().facts
        assert json.loads(json.dumps(facts)) == facts
        assert facts["id"] == message.pk
        assert facts["queue"] == "jobs"


def test_after_the_reaper_the_error_of_the_lost_delivery_is_told(queue, clock):
    message = enqueue_and_claim("jobs")
    clock.advance(queue.lock_duration)
    reap()

    assert message.explain().facts["last_error"].startswith("LeaseExpired: ")


def test_a_language_without_a_catalogue_gets_english(queue):
    with override("fi"):
        assert "is not due before" in enqueue(delay=5).explain().text


def test_where_the_handlers_cannot_be_imported_there_is_an_answer_all_the_same(queue, monkeypatch):
    def raise_it():
        raise ModuleNotFoundError("stripe")

    monkeypatch.setattr(explain, "get_handlers", raise_it)

    assert enqueue().explain().code == "no_worker"
