"""Workers and what they report: slots, and settled deliveries of the last hour."""

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import Message, MetaEntry, Queue
from django_mqlite.verbs.tallies import (
    Tally,
    delivery_times,
    duration_class,
    merge_tallies,
    periods,
)
from django_mqlite.verbs.workers import register, registered_workers, unregister
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.registry import WorkerEntry
from tests.support.verbs import activate, claim_one, enqueue_and_claim, record, tallies

pytestmark = pytest.mark.django_db

MINUTE = 60_000


def overview(queue="jobs"):
    return next(entry for entry in Queue.objects.overview() if entry.stats.queue == queue)


def test_overview_counts_messages_workers_and_slots(queue, make_queue, clock):
    make_queue("others")
    Message.objects.enqueue("jobs", 1)
    register("default", record("w1"))
    register("default", record("w2", queues=("jobs", "others"), slots=2))

    assert overview().stats.counts["active"] == 1
    assert (overview().workers, overview().slots) == (2, 6)
    assert (overview("others").workers, overview("others").slots) == (1, 2)


def test_overview_has_sixty_minutes_and_the_current_one_last(queue, clock):
    minute = clock.ms // MINUTE
    counts = tallies("jobs", (minute, 5, 1), (minute - 59, 7, 0), (minute - 60, 99, 99))
    register("default", record(), counts)

    entry = overview()

    assert len(entry.minutes) == 60
    assert (entry.minutes[0].completed, entry.minutes[-1].failed) == (7, 1)
    assert entry.minutes[-1].began_ms == minute * MINUTE
    assert (entry.completed, entry.failed) == (12, 1)


def test_overview_adds_up_running_and_former_workers(queue, clock):
    minute = clock.ms // MINUTE
    for worker in ("w1", "w2", "w3"):
        register("default", record(worker), tallies("jobs", (minute, 2, 1)))

    unregister("default", "w1")
    unregister("default", "w2")
    unregister("default", "w2")

    assert (overview().completed, overview().failed) == (6, 3)


def test_counts_of_former_workers_are_kept_for_an_hour(queue, clock):
    minute = clock.ms // MINUTE
    register("default", record("w1"), tallies("jobs", (minute, 2, 1)))
    unregister("default", "w1")
    clock.advance(3_600)
    register("default", record("w2"), tallies("jobs", (minute + 60, 3, 0)))
    unregister("default", "w2")

    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM mqlite_meta WHERE key = 'settled'")
        ((text,),) = cursor.fetchall()
    assert json.loads(text) == {"minutes": {"jobs": [[minute + 60, 0, 3], [minute + 60, 1, 0]]}}
    assert overview().completed == 3


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda message: message.complete(), (1, 0)),
        (lambda message: message.abandon(delay=0), (0, 1)),
        (lambda message: message.abandon(delay=60), (0, 1)),
        (lambda message: message.reject("Broken"), (0, 1)),
        (lambda message: message.defer(), (0, 0)),
    ],
    ids=["complete", "abandon", "back off", "reject", "defer"],
)
def test_delivery_is_counted_by_its_outcome(queue, clock, end, expected):
    tally = Tally()
    message = enqueue_and_claim("jobs")
    end(message)

    tally.add("jobs", message.state, waited_ms=0, ran_ms=0, now=clock.ms)

    for series in ("minutes", "half_hours"):
        period = periods(tally.recent(now=clock.ms), series, "jobs", now=clock.ms)[-1]
        assert (period.completed, period.failed) == expected


@pytest.mark.parametrize(
    ("series", "seconds"),
    [("minutes", 3_600), ("half_hours", 86_400), ("waits", 3_600), ("runs", 3_600)],
)
def test_tally_drops_counts_that_are_too_old(clock, series, seconds):
    tally = Tally()
    tally.add("jobs", "completed", waited_ms=1, ran_ms=1, now=clock.ms)
    before = tally.recent(now=clock.ms + seconds * 1_000 - 1_800_000)

    assert "jobs" in before[series]
    assert series not in tally.recent(now=clock.ms + seconds * 1_000)
    assert series not in merge_tallies([before], now=clock.ms + seconds * 1_000)
    assert {period.completed for period in periods({}, series, "jobs", now=clock.ms)} == {0}


@pytest.mark.parametrize("ms", [1, 2, 7, 90, 1_000, 12_345, 3_600_000, 10**10])
def test_duration_is_known_to_nine_percent(ms):
    tally = Tally()
    tally.add("jobs", "completed", waited_ms=ms, ran_ms=0, now=0)

    times = delivery_times(tally.recent(now=0), "waits", "jobs")

    assert times.median_ms == times.p95_ms == pytest.approx(ms, rel=0.095, abs=0.5)
    assert duration_class(0) == duration_class(-5) == 0


def test_median_and_95th_percentile_are_those_of_all_workers(queue, clock):
    for worker in ("w1", "w2"):
        tally = Tally()
        for waited_ms in [10] * 5 + [1_000] * 4 + [60_000]:
            tally.add("jobs", "completed", waited_ms=waited_ms, ran_ms=200, now=clock.ms)
        register("default", record(worker), tally.recent(now=clock.ms))
    unregister("default", "w1")

    wait, run = overview().wait, overview().run

    assert (wait.median_ms, wait.p95_ms) == pytest.approx((10, 60_000), rel=0.095)
    assert (run.median_ms, run.p95_ms) == pytest.approx((200, 200), rel=0.095)
    assert overview().half_hours[-1].completed == 20


def test_queue_without_deliveries_has_no_times(queue, clock):
    assert (overview().wait, overview().run) == (None, None)


def test_worker_counts_how_long_a_message_waited_and_ran(queue, clock):
    Message.objects.enqueue("jobs", 1, delay=5)
    clock.advance(5 + 40)
    activate()
    entry = WorkerEntry(WorkerOptions(using="default", queues=("jobs",), name="w1"))
    message = claim_one("jobs")
    clock.advance(3)
    message.complete()
    entry.count(message)
    entry.remove()

    assert overview().wait.median_ms == pytest.approx(40_000, rel=0.095)
    assert overview().run.median_ms == pytest.approx(3_000, rel=0.095)


def hold(queue, **options):
    Message.objects.enqueue(queue, 1)
    claim_one(queue, **options)


def test_busy_slots_are_those_of_live_workers_and_live_leases(queue, make_queue, clock):
    make_queue("others")
    register("default", record("w1", queues=("jobs", "others"), slots=2))
    register("default", record("w2", slots=3))
    hold("jobs", worker="w1", lock_duration=60)
    hold("others", worker="w1", lock_duration=60)
    hold("jobs", worker="w2", lock_duration=5)
    hold("jobs", worker="a script", lock_duration=60)
    assert (overview().busy, overview("others").busy) == (3, 2)

    clock.advance(5)

    assert (overview().busy, overview("others").busy) == (2, 2)
    assert not overview("others").is_busy
    Message.objects.enqueue("others", 1)
    assert overview("others").is_busy


def test_worker_counts_deliveries_without_a_query(queue, clock, django_assert_num_queries):
    entry = WorkerEntry(WorkerOptions(using="default", queues=("jobs",), name="w1"))
    entry.refresh(in_flight=0)
    message = enqueue_and_claim("jobs")
    message.complete()

    with django_assert_num_queries(0):
        entry.count(message)
        entry.refresh(in_flight=0)
    entry.remove()

    assert overview().completed == 1


def test_overview_takes_as_many_queries_for_any_number_of_queues(queue, make_queue):
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            Queue.objects.overview()
        counts.append(len(captured))
        for number in range(20):
            make_queue(f"queue-{number}")

    assert counts[0] == counts[1] <= 6


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("queues", value) for value in (None, 5, [1], [None])),
        *((name, value) for name in ("slots", "in_flight") for value in ("x", None, 1.5)),
        *(("started_at", value) for value in ("x", 1e300)),
        ("host", None),
        ("pid", "x"),
    ],
)
def test_worker_record_with_a_damaged_field_is_ignored(queue, field, value):
    register("default", record("w1"))
    entry = MetaEntry.objects.get(key="worker:w1")
    values = {**json.loads(entry.value), field: value}
    MetaEntry.objects.filter(pk=entry.pk).update(value=json.dumps(values))

    assert registered_workers("default") == []


def test_worker_record_of_a_newer_release_is_read(queue):
    register("default", record("w1"))
    entry = MetaEntry.objects.get(key="worker:w1")
    values = {**json.loads(entry.value), "colour": "blue"}
    MetaEntry.objects.filter(pk=entry.pk).update(value=json.dumps(values))

    (worker,) = registered_workers("default")

    assert (worker.worker, worker.queues, worker.slots) == ("w1", ("jobs",), 4)
