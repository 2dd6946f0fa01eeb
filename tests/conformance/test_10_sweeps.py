"""10.3 Sweeps are bounded, and a message that a sweep cannot move does not stop it."""

import sqlite3
from contextlib import closing

import pytest
from django.db import connection

from django_mqlite import Draft, enqueue, enqueue_many
from django_mqlite.models import DeadLetter, Message
from django_mqlite.verbs import sweeps
from django_mqlite.worker import reaper
from django_mqlite.worker.reaper import MAX_POLL_INTERVAL, Reaper
from tests.support.verbs import claim_ids, state_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.3")]

REFERENCE = """
    CREATE TABLE referring (
        message integer NOT NULL REFERENCES mqlite_messages (id) DEFERRABLE INITIALLY DEFERRED)
"""


@pytest.fixture
def refer_to(db):
    """Insert a row that refers to a message, as a ForeignKey of a model does."""
    with connection.cursor() as cursor:
        cursor.execute(REFERENCE)

        def refer_to(message):
            cursor.execute("INSERT INTO referring VALUES (%s)", [message.pk])

        yield refer_to
        cursor.execute("DROP TABLE referring")


def completed(make_queue, clock):
    make_queue("jobs", retain_completed=60)
    messages = enqueue_many("jobs", range(5))
    Message.objects.complete_many(Message.objects.claim("jobs", limit=5))
    clock.advance(60)
    return messages


def dead(make_queue, clock):
    make_queue("jobs", dlq_max_age=60)
    messages = enqueue_many("jobs", range(5))
    for message in Message.objects.claim("jobs", limit=5):
        message.reject("Broken")
    clock.advance(60)
    return messages


def expired(make_queue, clock):
    make_queue("jobs", default_ttl=60, dead_letter_on_expire=False)
    messages = enqueue_many("jobs", range(5))
    clock.advance(60)
    return messages


def locked(make_queue, clock):
    make_queue("jobs")
    enqueue_many("jobs", range(5))
    assert len(claim_ids("jobs")) == 5
    clock.advance(30)


def scheduled(make_queue, clock):
    make_queue("jobs")
    enqueue_many("jobs", range(5), delay=60)
    clock.advance(60)


@pytest.mark.parametrize(
    ("make", "sweep"),
    [
        (locked, sweeps.release_expired_leases),
        (scheduled, sweeps.activate_due),
        (expired, sweeps.expire),
        (completed, sweeps.prune_completed),
        (dead, sweeps.prune_dead_letters),
    ],
    ids=lambda function: function.__name__,
)
def test_sweep_is_bounded(clock, make_queue, make, sweep):
    make(make_queue, clock)

    assert [sweep("default", limit=2) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize("make", [completed, dead, expired])
def test_referenced_message_is_kept_and_the_others_are_deleted(clock, make_queue, refer_to, make):
    messages = make(make_queue, clock)
    refer_to(messages[2])

    reaper.run_all("default")

    assert [m.pk for m in Message.objects.all()] == [messages[2].pk]


@pytest.mark.parametrize("make", [completed, dead, expired])
def test_batch_of_referenced_messages_does_not_stop_the_sweep(
    clock, make_queue, refer_to, make, monkeypatch
):
    monkeypatch.setattr(reaper, "BATCH", 2)
    messages = make(make_queue, clock)
    for message in messages[:2]:
        refer_to(message)

    for _ in range(5):
        reaper.run_all("default")

    assert [m.pk for m in Message.objects.all()] == [message.pk for message in messages[:2]]


def test_reaper_waits_although_a_referenced_message_is_kept(clock, make_queue, refer_to):
    messages = expired(make_queue, clock)
    refer_to(messages[2])
    reaper = Reaper("default")

    delays = [reaper.poll() for _ in range(5)]

    assert min(delays[-2:]) > 0


def test_message_of_a_missing_queue_stops_no_sweep(clock, make_queue):
    """A program that does not enforce foreign keys deleted it, as the SQLite shell does."""
    for name in ("lost", "jobs"):
        make_queue(name, default_ttl=100)
        enqueue_many(name, [Draft(1, delay=10), Draft(2, group_id="g"), Draft(3, group_id="g")])
        assert len(claim_ids(name)) == 1
    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as shell:
        shell.execute("DELETE FROM mqlite_queues WHERE name = 'lost'")
        shell.commit()

    clock.advance(30)
    assert sweeps.release_expired_leases("default", limit=100) == 1
    assert sweeps.activate_due("default", limit=100) == 1
    clock.advance(80)
    assert sweeps.expire("default", limit=100) == 3

    assert DeadLetter.objects.count() == 3
    assert {m.queue for m in DeadLetter.objects.all()} == {"jobs"}
    Message.objects.filter(queue="lost").delete()


OVERDUE = {
    "expired": ({"ttl": 1}, "active"),
    "expired and deferred": ({"ttl": 1}, "deferred"),
    "expired and scheduled": ({"ttl": 1, "delay": 1}, "scheduled"),
    "due": ({"delay": 1}, "scheduled"),
    "lease over": ({}, "locked"),
}


@pytest.mark.parametrize("case", OVERDUE)
def test_reaper_waits_although_the_queue_of_a_message_is_missing(clock, make_queue, case):
    options, state = OVERDUE[case]
    make_queue("lost", lock_duration=1)
    message = enqueue("lost", None, **options)
    if state in ("deferred", "locked"):
        (claimed,) = Message.objects.claim("lost")
        if state == "deferred":
            claimed.defer()
    assert state_of(message) == state
    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as shell:
        shell.execute("DELETE FROM mqlite_queues WHERE name = 'lost'")
        shell.commit()
    clock.advance(60)
    reaper = Reaper("default")

    delays = [reaper.poll() for _ in range(3)]

    assert delays == [MAX_POLL_INTERVAL] * 3
    assert state_of(message) == state
    Message.objects.all().delete()


@pytest.mark.parametrize("mode", ["group_fifo", "strict_fifo"])
def test_whole_lines_are_expired_and_redriven_in_order(clock, make_queue, mode):
    """Two heads in a line, even within a statement, would violate the unique index."""
    make_queue("jobs", ordering_mode=mode, default_ttl=60)
    messages = enqueue_many("jobs", [Draft(n, group_id=f"g{n % 3}") for n in range(30)])
    clock.advance(60)

    assert sweeps.expire("default", limit=7) == 7
    assert sweeps.expire("default", limit=100) == 23
    assert {state_of(message) for message in messages} == {"dead_lettered"}

    assert DeadLetter.objects.redrive([m.pk for m in reversed(messages)]) == 30
    handled = []
    while batch := Message.objects.claim("jobs", limit=100):
        handled += [message.data for message in batch]
        Message.objects.complete_many(batch)
    assert sorted(handled) == list(range(30))
    assert [[n for n in handled if n % 3 == group] for group in range(3)] == [
        list(range(group, 30, 3)) for group in range(3)
    ]
