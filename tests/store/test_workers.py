"""Workers and what they report: slots, and settled deliveries of the last hour."""

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_mqlite.models import Message, MetaEntry, Queue
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.workers import (
    MINUTES,
    Tally,
    last_hour,
    merge_tallies,
    register,
    registered_workers,
    unregister,
)
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.registry import WorkerEntry
from tests.support.verbs import enqueue_and_claim

pytestmark = pytest.mark.django_db

MINUTE = 60_000


def record(worker="w1", queues=("jobs",), **facts):
    return WorkerRecord(
        **{
            "worker": worker,
            "host": "host",
            "boot_id": "boot",
            "pid_namespace": 1,
            "pid": 1,
            "process_started_at": 0.0,
            "queues": queues,
            "slots": 4,
            "in_flight": 1,
            "started_at": 0,
            **facts,
        }
    )


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
    counts = {"jobs": [(minute, 5, 1), (minute - 59, 7, 0), (minute - 60, 99, 99)]}
    register("default", record(settled=counts))

    entry = overview()

    assert len(entry.minutes) == MINUTES
    assert (entry.minutes[0].completed, entry.minutes[-1].failed) == (7, 1)
    assert entry.minutes[-1].began_ms == minute * MINUTE
    assert (entry.completed, entry.failed) == (12, 1)


def test_overview_adds_up_running_and_former_workers(queue, clock):
    minute = clock.ms // MINUTE
    for worker in ("w1", "w2", "w3"):
        register("default", record(worker, settled={"jobs": [(minute, 2, 1)]}))

    unregister("default", "w1")
    unregister("default", "w2")
    unregister("default", "w2")

    assert (overview().completed, overview().failed) == (6, 3)


def test_counts_of_former_workers_are_kept_for_an_hour(queue, clock):
    minute = clock.ms // MINUTE
    register("default", record("w1", settled={"jobs": [(minute, 2, 1)]}))
    unregister("default", "w1")
    clock.advance(3_600)
    register("default", record("w2", settled={"jobs": [(minute + 60, 3, 0)]}))
    unregister("default", "w2")

    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM mqlite_meta WHERE key = 'settled'")
        assert cursor.fetchall() == [(f'{{"jobs": [[{minute + 60}, 3, 0]]}}',)]
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

    tally.add("jobs", message.state, now=clock.ms)

    minute = last_hour(tally.last_hour(now=clock.ms), "jobs", now=clock.ms)[-1]
    assert (minute.completed, minute.failed) == expected


def test_tally_drops_counts_older_than_an_hour(clock):
    tally = Tally()
    tally.add("jobs", "completed", now=clock.ms)
    assert tally.last_hour(now=clock.ms)

    assert tally.last_hour(now=clock.ms + 3_600_000) == {}
    assert tally.last_hour(now=clock.ms) == {}
    assert merge_tallies([], now=clock.ms) == {}
    assert {minute.completed for minute in last_hour({}, "jobs", now=clock.ms)} == {0}


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

    assert counts[0] == counts[1] <= 5


def test_worker_record_of_a_newer_release_is_read(queue):
    register("default", record("w1"))
    entry = MetaEntry.objects.get(key="worker:w1")
    values = {**json.loads(entry.value), "colour": "blue"}
    MetaEntry.objects.filter(pk=entry.pk).update(value=json.dumps(values))

    (worker,) = registered_workers("default")

    assert (worker.worker, worker.queues, worker.slots) == ("w1", ("jobs",), 4)
