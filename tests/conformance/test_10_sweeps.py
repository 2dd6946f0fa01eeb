"""10.3 One message that a sweep cannot move never stops it for the others."""

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
    """Has a row of the application refer to a message, as a ForeignKey of a model would."""
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


@pytest.mark.parametrize("make", [completed, dead, expired])
def test_a_message_that_another_table_refers_to_stays_and_the_others_go(
    clock, make_queue, refer_to, make
):
    messages = make(make_queue, clock)
    refer_to(messages[2])

    reaper.run_all("default")

    assert [m.pk for m in Message.objects.all()] == [messages[2].pk]


@pytest.mark.parametrize("make", [completed, dead, expired])
def test_a_whole_batch_of_such_messages_does_not_hide_the_others(
    clock, make_queue, refer_to, make, monkeypatch
):
    monkeypatch.setattr(reaper, "BATCH", 2)
    messages = make(make_queue, clock)
    for message in messages[:2]:
        refer_to(message)

    for _ in range(5):
        reaper.run_all("default")

    assert [m.pk for m in Message.objects.all()] == [message.pk for message in messages[:2]]


def test_a_message_that_must_stay_does_not_keep_the_reaper_from_resting(
    clock, make_queue, refer_to
):
    messages = expired(make_queue, clock)
    refer_to(messages[2])
    reaper = Reaper("default")

    rests = [reaper.poll() for _ in range(5)]

    assert min(rests[-2:]) > 0


def test_a_message_whose_queue_was_deleted_behind_our_back_stops_no_sweep(clock, make_queue):
    """By a program that does not enforce foreign keys: the SQLite shell does not."""
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
def test_reaper_rests_beside_messages_whose_queue_is_missing(clock, make_queue, case):
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

    rests = [reaper.poll() for _ in range(3)]

    assert rests == [MAX_POLL_INTERVAL] * 3
    assert state_of(message) == state
    Message.objects.all().delete()


@pytest.mark.parametrize("mode", ["group_fifo", "strict_fifo"])
def test_whole_lines_are_moved_at_once_though_only_one_message_may_be_their_head(
    clock, make_queue, mode
):
    """The unique index on the heads would stop the sweep if two were heads for a moment."""
    make_queue("jobs", ordering_mode=mode, default_ttl=60)
    messages = enqueue_many("jobs", [Draft(n, group_id=f"g{n % 3}") for n in range(30)])
    clock.advance(60)

    assert sweeps.expire("default", limit=7) == 7
    assert sweeps.expire("default", limit=100) == 23
    assert {state_of(message) for message in messages} == {"dead_lettered"}

    assert DeadLetter.objects.redrive([m.pk for m in reversed(messages)]) == 30
    given = []
    while batch := Message.objects.claim("jobs", limit=100):
        given += [message.data for message in batch]
        Message.objects.complete_many(batch)
    assert sorted(given) == list(range(30))
    assert [[n for n in given if n % 3 == group] for group in range(3)] == [
        list(range(group, 30, 3)) for group in range(3)
    ]
