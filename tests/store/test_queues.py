"""Queue rows: created, configured, paused, resumed, counted."""

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from django_mqlite import enqueue
from django_mqlite.conf import QUEUE_OPTIONS, queue_config
from django_mqlite.models import Message, Queue
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


def test_a_created_queue_has_its_options_and_the_defaults(clock, make_queue):
    queue = make_queue("jobs", lock_duration=60, ordering_mode="group_fifo")

    assert (queue.name, queue.kind, str(queue)) == ("jobs", "queue", "jobs")
    assert (queue.lock_duration, queue.ordering_mode) == (timedelta(seconds=60), "group_fifo")
    assert (queue.max_delivery_count, queue.backoff_base_ms, queue.paused) == (10, 1_000, False)
    assert (queue.created_at, queue.updated_at) == (clock.now, clock.now)


def test_the_defaults_of_the_table_are_those_of_the_configuration(clock, make_queue):
    declared = make_queue("declared")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO mqlite_queues (name, created_at, updated_at) VALUES ('plain', %s, %s)",
            [clock.now_ms(), clock.now_ms()],
        )

    plain = Queue.objects.get(name="plain")
    for field in Queue._meta.concrete_fields:
        if field.name != "name":
            assert getattr(plain, field.name) == getattr(declared, field.name), field.name


def test_declaring_again_brings_the_row_to_the_options(clock, make_queue):
    make_queue("jobs", lock_duration=60, max_delivery_count=3)
    clock.advance(1)

    queue = make_queue("jobs", lock_duration=90)

    assert (queue.lock_duration_ms, queue.max_delivery_count) == (90_000, 10)
    assert queue.updated_at == clock.now
    assert queue.created_at == clock.now - timedelta(seconds=1)


def test_declaring_the_same_again_changes_nothing(clock, make_queue):
    before = Queue.objects.filter(name=make_queue("jobs").name).values().get()
    clock.advance(1)

    make_queue("jobs")

    assert Queue.objects.filter(name="jobs").values().get() == before


OTHER_VALUES = {
    "ordering_mode": "group_fifo",
    "lock_duration": 1,
    "max_delivery_count": 1,
    "backoff_base": 0,
    "backoff_max": 0,
    "default_ttl": 1,
    "dead_letter_on_expire": False,
    "dedup_window": 1,
    "retain_completed": 1,
    "dlq_max_age": 1,
    "dlq_max_count": 1,
    "dlq_max_bytes": 1,
}


@pytest.mark.parametrize("option", QUEUE_OPTIONS)
def test_each_option_alone_is_a_change_that_arrives(clock, make_queue, option):
    make_queue("jobs")
    before = Queue.objects.filter(name="jobs").values().get()
    clock.advance(1)

    changed = make_queue("jobs", **{option: OTHER_VALUES[option]})

    expected = queue_config({option: OTHER_VALUES[option]}, "jobs")
    column, _ = QUEUE_OPTIONS[option]
    after = Queue.objects.filter(name="jobs").values().get()
    assert after[column] == getattr(expected, column) != before[column]
    assert {name for name in before if before[name] != after[name]} == {column, "updated_at"}
    assert changed.updated_at == clock.now


def test_declaring_again_keeps_a_pause(clock, make_queue):
    make_queue("jobs").pause()

    assert make_queue("jobs", lock_duration=90).paused


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 129, None])
def test_a_name_that_no_queue_can_have_is_refused(clock, make_queue, name):
    with pytest.raises(ValueError, match="Invalid queue name"):
        make_queue(name)

    assert not Queue.objects.exists()


def test_a_wrong_option_is_refused_by_name(clock, make_queue):
    with pytest.raises(ImproperlyConfigured, match=r"queue 'jobs' has no option 'lock'"):
        make_queue("jobs", lock=5)


CHANGES = [
    ("standard", "strict_fifo"),
    ("group_fifo", "strict_fifo"),
    ("strict_fifo", "standard"),
    ("strict_fifo", "group_fifo"),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("state", ["active", "locked", "scheduled", "dead_lettered"])
def test_strictness_cannot_change_under_messages_that_stand_in_that_order(
    clock, make_queue, before, after, state
):
    make_queue("jobs", ordering_mode=before)
    match state:
        case "active":
            enqueue("jobs", None, group_id="g")
        case "locked":
            enqueue_and_claim("jobs", group_id="g")
        case "scheduled":
            enqueue("jobs", None, group_id="g", delay=5)
        case "dead_lettered":
            dead_letter("jobs", group_id="g")

    with pytest.raises(ImproperlyConfigured, match=f"'jobs' is {before}.*become {after} when"):
        make_queue("jobs", ordering_mode=after)

    assert Queue.objects.get(name="jobs").ordering_mode == before


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_strictness_can_change_once_the_queue_is_empty(clock, make_queue, before, after):
    make_queue("jobs", ordering_mode=before, retain_completed=60)
    enqueue_and_claim("jobs", group_id="g").complete()

    assert make_queue("jobs", ordering_mode=after).ordering_mode == after


@pytest.mark.parametrize(
    ("before", "after"), [("standard", "group_fifo"), ("group_fifo", "standard")]
)
def test_a_group_queue_and_a_standard_one_order_alike_and_can_change(
    clock, make_queue, before, after
):
    make_queue("jobs", ordering_mode=before)
    first, second = (enqueue("jobs", n, group_id="g") for n in range(2))

    make_queue("jobs", ordering_mode=after)

    claimed = claim_one("jobs")
    assert claimed.pk == first.pk
    assert Message.objects.claim("jobs") == []
    claimed.complete()
    assert claim_one("jobs").pk == second.pk


def test_pausing_and_resuming_say_whether_that_was_a_change(clock, queue):
    clock.advance(1)

    assert queue.pause()
    assert queue.paused
    assert not queue.pause()
    stored = Queue.objects.get(name="jobs")
    assert (stored.paused, stored.updated_at) == (True, clock.now)
    assert stored.resume()
    assert not stored.resume()
    assert not Queue.objects.get(name="jobs").paused


def test_a_pause_leaves_live_leases_alone(clock, queue):
    message = enqueue_and_claim("jobs")

    queue.pause()

    message.renew()
    message.complete()


def test_stats_count_each_state_of_each_queue(clock, make_queue):
    make_queue("empty")
    make_queue("jobs", retain_completed=60)
    make_queue("paused").pause()
    clock.advance(-100)
    oldest = clock.now_ms()
    enqueue("jobs", None, priority=1)
    clock.advance(100)
    enqueue("jobs", None)
    for _ in range(2):
        enqueue("jobs", None, delay=60)
    for verb in ("keep", "keep", "keep", "complete", "reject", "reject"):
        enqueue("jobs", None, priority=9)
        message = claim_one("jobs")
        if verb == "complete":
            message.complete()
        elif verb == "reject":
            message.reject("R")

    empty, jobs, paused = Queue.objects.stats()

    assert [stats.queue for stats in (empty, jobs, paused)] == ["empty", "jobs", "paused"]
    assert jobs.counts == {
        "active": 2,
        "locked": 3,
        "scheduled": 2,
        "deferred": 0,
        "dead_lettered": 2,
        "completed": 1,
    }
    assert jobs.due_since_ms == oldest
    assert (empty.due_since_ms, set(empty.counts.values())) == (None, {0})
    assert (jobs.paused, paused.paused) == (False, True)


def test_stats_are_one_read(clock, queue):
    with CaptureQueriesContext(connection) as queries:
        Queue.objects.stats()

    assert len(queries) == 1


def test_sync_brings_the_declared_queues_and_names_those_that_changed(clock, settings, db):
    settings.MQLITE = {"QUEUES": {"a": {}, "b": {"lock_duration": 5}}}
    assert Queue.objects.sync() == ["a", "b"]
    assert Queue.objects.sync() == []

    settings.MQLITE = {"QUEUES": {"b": {"lock_duration": 6}, "c": {}}}
    assert Queue.objects.sync() == ["b", "c"]

    assert [queue.name for queue in Queue.objects.order_by("name")] == ["a", "b", "c"]


def test_deleting_a_queue_takes_its_messages_along_and_no_others(clock, queue, make_queue):
    make_queue("other")
    enqueue("other", None)
    enqueue("jobs", None)
    enqueue_and_claim("jobs")
    dead_letter("jobs")

    queue.delete()

    assert [message.queue for message in Message.objects.all()] == ["other"]


@pytest.mark.parametrize(
    "values",
    [
        "('a b', 'fifo', 1, 1, 0)",
        "('a', 'standard', 0, 1, 0)",
        "('a', 'standard', 1, 0, 0)",
        "('a', 'standard', 1, 1, 2)",
        "('a', 'standard', 'x', 1, 0)",
    ],
    ids=["mode", "lock duration", "bound", "paused", "type"],
)
def test_the_table_itself_refuses_what_no_queue_can_be(clock, db, values):
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO mqlite_queues (name, ordering_mode, lock_duration_ms, max_delivery_count,"
            f" paused, created_at, updated_at) VALUES ({values[1:-1]}, 0, 0)"
        )
