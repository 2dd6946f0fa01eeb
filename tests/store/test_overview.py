"""Queue.objects.overview(): depth, workers, and what workers have counted in the last hour."""

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
    return next(each for each in Queue.objects.overview() if each.stats.queue == queue)


def test_a_queue_at_a_glance(queue, make_queue, clock):
    make_queue("others")
    Message.objects.enqueue("jobs", 1)
    register("default", record("w1"))
    register("default", record("w2", queues=("jobs", "others"), slots=2))

    found = overview()

    assert found.stats.counts["active"] == 1
    assert (found.workers, found.slots) == (2, 6)
    assert (overview("others").workers, overview("others").slots) == (1, 2)


def test_an_hour_has_sixty_minutes_the_running_one_last(queue, clock):
    minute = clock.ms // MINUTE
    counted = {"jobs": [(minute, 5, 1), (minute - 59, 7, 0), (minute - 60, 99, 99)]}
    register("default", record(settled=counted))

    found = overview()

    assert len(found.minutes) == MINUTES
    assert (found.minutes[0].completed, found.minutes[-1].failed) == (7, 1)
    assert found.minutes[-1].began_ms == minute * MINUTE
    assert (found.completed, found.failed) == (12, 1)


def test_several_workers_are_added_up_and_those_that_are_gone_too(queue, clock):
    minute = clock.ms // MINUTE
    for worker in ("w1", "w2", "w3"):
        register("default", record(worker, settled={"jobs": [(minute, 2, 1)]}))

    unregister("default", "w1")
    unregister("default", "w2")
    unregister("default", "w2")

    assert (overview().completed, overview().failed) == (6, 3)


def test_what_is_older_than_an_hour_is_not_kept(queue, clock):
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
def test_a_delivery_counts_as_it_ended(queue, clock, end, expected):
    tally = Tally()
    message = enqueue_and_claim("jobs")
    end(message)

    tally.add("jobs", message.state, now=clock.ms)

    minute = last_hour(tally.last_hour(now=clock.ms), "jobs", now=clock.ms)[-1]
    assert (minute.completed, minute.failed) == expected


def test_a_tally_forgets_what_is_over(clock):
    tally = Tally()
    tally.add("jobs", "completed", now=clock.ms)
    assert tally.last_hour(now=clock.ms)

    assert tally.last_hour(now=clock.ms + 3_600_000) == {}
    assert tally.last_hour(now=clock.ms) == {}


def test_nothing_counted_is_nothing(clock):
    assert merge_tallies([], now=clock.ms) == {}
    assert {each.completed for each in last_hour({}, "jobs", now=clock.ms)} == {0}


def test_counting_writes_nothing_until_the_entry_is_written(queue, clock):
    entry = WorkerEntry(WorkerOptions(using="default", queues=("jobs",), name="w1"))
    entry.refresh(in_flight=0)
    message = enqueue_and_claim("jobs")
    message.complete()

    with CaptureQueriesContext(connection) as captured:
        entry.count(message)
        entry.refresh(in_flight=0)
    assert len(captured) == 0
    entry.remove()

    assert overview().completed == 1


def test_an_overview_costs_the_same_statements_for_any_number_of_queues(queue, make_queue):
    with CaptureQueriesContext(connection) as one:
        Queue.objects.overview()
    for number in range(20):
        make_queue(f"queue-{number}")
    with CaptureQueriesContext(connection) as many:
        Queue.objects.overview()

    assert len(many) == len(one) <= 5


def test_record_of_a_newer_release_is_read_without_unknown_fields(queue):
    register("default", record("w1"))
    entry = MetaEntry.objects.get(key="worker:w1")
    values = {**json.loads(entry.value), "colour": "blue"}
    MetaEntry.objects.filter(pk=entry.pk).update(value=json.dumps(values))

    (worker,) = registered_workers("default")

    assert (worker.worker, worker.queues, worker.slots) == ("w1", ("jobs",), 4)
