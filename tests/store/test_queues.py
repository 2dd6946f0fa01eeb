"""Queue rows: created, configured, paused, deleted and counted."""

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, connection

from django_mqlite import enqueue
from django_mqlite.conf import QUEUE_OPTIONS, queue_columns
from django_mqlite.models import Message, Queue
from tests.support.verbs import claim_one, dead_letter, enqueue_and_claim

pytestmark = pytest.mark.django_db


def row(name="jobs"):
    return Queue.objects.filter(name=name).values().get()


def test_new_queue_has_its_options_and_the_defaults(clock, make_queue):
    queue = make_queue("jobs", lock_duration=60, ordering_mode="group_fifo")

    assert (queue.name, queue.kind, str(queue)) == ("jobs", "queue", "jobs")
    assert (queue.lock_duration, queue.ordering_mode) == (timedelta(seconds=60), "group_fifo")
    assert (queue.max_delivery_count, queue.backoff_base_ms, queue.paused) == (10, 1_000, False)
    assert (queue.created_at, queue.updated_at) == (clock.now, clock.now)


def test_table_and_configuration_have_the_same_defaults(clock, make_queue):
    make_queue("declared")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO mqlite_queues (name, created_at, updated_at) VALUES ('plain', %s, %s)",
            [clock.now_ms(), clock.now_ms()],
        )

    assert row("plain") == row("declared") | {"name": "plain"}


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
    "max_in_flight": 1,
    "rate": "100/min",
}


@pytest.mark.parametrize("option", QUEUE_OPTIONS)
def test_changed_option_is_written_to_its_column(clock, make_queue, option):
    make_queue("jobs")
    before = row()
    clock.advance(1)

    changed = make_queue("jobs", **{option: OTHER_VALUES[option]})

    columns = queue_columns({option: OTHER_VALUES[option]}, "jobs")
    after = row()
    changes = {name: after[name] for name in before if before[name] != after[name]}
    assert changes == {**columns, "updated_at": clock.now}
    assert changed.updated_at == clock.now


def test_omitted_option_returns_to_its_default_and_a_pause_stays(clock, make_queue):
    make_queue("jobs", max_delivery_count=3).pause()

    queue = make_queue("jobs", lock_duration=90)

    assert (queue.lock_duration_ms, queue.max_delivery_count, queue.paused) == (90_000, 10, True)


def test_unchanged_queue_is_not_written(clock, make_queue):
    make_queue("jobs")
    before = row()
    clock.advance(1)

    make_queue("jobs")

    assert row() == before


def test_sync_returns_the_names_of_changed_queues(clock, settings, db):
    settings.MQLITE = {"QUEUES": {"a": {}, "b": {"lock_duration": 5}}}
    assert Queue.objects.sync() == ["a", "b"]
    assert Queue.objects.sync() == []

    settings.MQLITE = {"QUEUES": {"b": {"lock_duration": 6}, "c": {}}}
    assert Queue.objects.sync() == ["b", "c"]

    assert [queue.name for queue in Queue.objects.order_by("name")] == ["a", "b", "c"]


def test_unknown_option_is_refused_by_name(clock, make_queue):
    with pytest.raises(ImproperlyConfigured, match=r"queue 'jobs' has no option 'lock'"):
        make_queue("jobs", lock=5)


ORDERED = {
    "active": lambda: enqueue("jobs", None, group_id="g"),
    "locked": lambda: enqueue_and_claim("jobs", group_id="g"),
    "scheduled": lambda: enqueue("jobs", None, group_id="g", delay=5),
    "dead_lettered": lambda: dead_letter("jobs", group_id="g"),
}
CHANGES = [
    ("standard", "strict_fifo"),
    ("group_fifo", "strict_fifo"),
    ("strict_fifo", "standard"),
    ("strict_fifo", "group_fifo"),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("state", ORDERED)
def test_strict_order_cannot_change_while_messages_have_places(
    clock, make_queue, before, after, state
):
    make_queue("jobs", ordering_mode=before)
    ORDERED[state]()

    with pytest.raises(ImproperlyConfigured, match=f"'jobs' is {before}.*become {after} when"):
        make_queue("jobs", ordering_mode=after)

    assert row()["ordering_mode"] == before


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_strict_order_can_change_after_all_messages_were_completed(
    clock, make_queue, before, after
):
    make_queue("jobs", ordering_mode=before, retain_completed=60)
    enqueue_and_claim("jobs", group_id="g").complete()

    assert make_queue("jobs", ordering_mode=after).ordering_mode == after


@pytest.mark.parametrize(
    ("before", "after"), [("standard", "group_fifo"), ("group_fifo", "standard")]
)
def test_groups_keep_their_order_when_they_become_required_or_not(clock, make_queue, before, after):
    make_queue("jobs", ordering_mode=before)
    first, second = (enqueue("jobs", n, group_id="g") for n in range(2))

    make_queue("jobs", ordering_mode=after)

    head = claim_one("jobs")
    assert head.pk == first.pk
    assert Message.objects.claim("jobs") == []
    head.complete()
    assert claim_one("jobs").pk == second.pk


def test_pause_and_resume_return_whether_they_changed_the_queue(clock, queue):
    held = enqueue_and_claim("jobs")
    clock.advance(1)

    assert (queue.pause(), queue.paused, queue.pause()) == (True, True, False)
    assert (row()["paused"], row()["updated_at"]) == (True, clock.now)
    held.renew()
    held.complete()
    assert (queue.resume(), queue.paused, queue.resume()) == (True, False, False)


def test_stats_count_each_state_of_each_queue(clock, make_queue, django_assert_num_queries):
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
    for verb in ("keep", "keep", "keep", "complete", "reject", "reject", "retry"):
        message = enqueue_and_claim("jobs", priority=9)
        if verb == "complete":
            message.complete()
        elif verb == "reject":
            message.reject("R")
        elif verb == "retry":
            message.abandon(delay=60)

    with django_assert_num_queries(1):
        empty, jobs, paused = Queue.objects.stats()

    assert [stats.queue for stats in (empty, jobs, paused)] == ["empty", "jobs", "paused"]
    assert jobs.counts == {
        "active": 2,
        "locked": 3,
        "scheduled": 3,
        "deferred": 0,
        "dead_lettered": 2,
        "completed": 1,
    }
    assert jobs.due_since_ms == oldest
    assert (jobs.retrying, jobs.recent_dead_letters) == (1, 2)
    assert (jobs.blocked, jobs.oldest_blocked) == (0, None)
    assert (empty.due_since_ms, set(empty.counts.values())) == (None, {0})
    assert (jobs.paused, paused.paused) == (False, True)


def test_dead_letters_are_recent_for_an_hour(clock, queue):
    dead_letter("jobs")
    clock.advance(3_599)
    assert Queue.objects.stats()[0].recent_dead_letters == 1

    clock.advance(1)

    assert Queue.objects.stats()[0].recent_dead_letters == 0
    assert Queue.objects.stats()[0].counts["dead_lettered"] == 1


def test_overview_shows_what_the_oldest_blocked_message_waits_for(clock, group_queue, strict_queue):
    head, blocked, _later = (enqueue("groups", n, group_id="a") for n in range(3))
    enqueue("groups", 1, group_id="b")
    enqueue("strict", 1)
    claim_one("groups").abandon(delay=60)

    groups, strict = Queue.objects.overview()

    assert (groups.stats.counts["active"], groups.stats.blocked) == (3, 2)
    assert groups.stats.oldest_blocked == groups.head.blocked_id == blocked.pk
    assert (groups.head.id, groups.head.state) == (head.pk, "scheduled")
    assert groups.head.is_retry
    assert groups.head.visible_at_ms - clock.ms == 60_000
    assert (strict.stats.blocked, strict.head) == (0, None)


def test_deletion_of_a_queue_deletes_its_messages_only(clock, queue, make_queue):
    make_queue("other")
    for name in ("other", "jobs"):
        enqueue_and_claim(name, None, group_id="g")
        enqueue(name, None, group_id="g")
        dead_letter(name)

    queue.delete()

    assert [message.queue for message in Message.objects.all()] == ["other"] * 3


@pytest.mark.parametrize(
    "values",
    [
        "'fifo', 1, 1, 0",
        "'standard', 0, 1, 0",
        "'standard', 1, 0, 0",
        "'standard', 1, 1, 2",
        "'standard', 'x', 1, 0",
    ],
    ids=["mode", "lock duration", "delivery limit", "paused", "type"],
)
def test_table_refuses_an_invalid_queue(clock, db, values):
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO mqlite_queues (name, ordering_mode, lock_duration_ms, max_delivery_count,"
            f" paused, created_at, updated_at) VALUES ('a', {values}, 0, 0)"
        )
