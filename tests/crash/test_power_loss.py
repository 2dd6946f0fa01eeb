"""10.6 The power is taken away at any instant of what the verbs write, again and again."""

import sqlite3
from contextlib import closing

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.backends.sqlite3.base import SQLiteCursorWrapper

from django_mqlite import enqueue
from django_mqlite.models import DeadLetter, Message
from tests.support.power_loss import power_losses, record, state_of
from tests.support.verbs import activate, claim_one, reap

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.6")]

TIMES = 400
SEED = 20260
"""Of the points and of what is lost; any other does as well."""


def day_in_the_life(clock) -> None:
    """Every verb, with bodies of some pages now and then."""
    for number in range(12):
        with transaction.atomic():
            Group.objects.create(name=f"order {number}")
            enqueue("jobs", {"order": number, "text": "x" * (number % 4) * 4_000})
    Message.objects.enqueue_many("jobs", [b"batch"] * 20)
    later = enqueue("jobs", b"later", delay=60)
    enqueue("jobs", b"never", delay=60).cancel()
    for message in Message.objects.claim("jobs", limit=6):
        message.complete()
    claim_one("jobs").abandon(delay=30, error="not yet")
    claim_one("jobs").reject("Broken", "for good")
    deferred = claim_one("jobs")
    deferred.defer()
    Message.objects.claim_deferred("jobs", [deferred.pk])
    claim_one("jobs").renew()
    claim_one("jobs")
    clock.advance(3_600)
    reap()
    activate()
    DeadLetter.objects.redrive_queue("jobs")
    Message.objects.complete_many(Message.objects.claim("jobs", limit=10))
    with transaction.atomic():
        message = Message.objects.get(pk=later.pk)
        Group.objects.filter(name="order 3").update(name="changed")
        assert message.state == "active"


@pytest.fixture
def day(clock, queue, tmp_path):
    """A copy of the database before that day, and the statements of the day."""
    before = tmp_path / "before.sqlite3"
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(before)])
    with closing(sqlite3.connect(before)) as copy:
        copy.execute("PRAGMA journal_mode = WAL")
    statements = []

    def note(execute, sql, parameters, many, context):
        named = list(parameters) if isinstance(parameters, dict) else None
        query = SQLiteCursorWrapper.convert_query(None, sql, param_names=named)
        statements.append((query if parameters else sql, parameters or ()))
        return execute(sql, parameters, many, context)

    def note_end(sql):
        if sql in ("COMMIT", "ROLLBACK"):
            statements.append((sql, ()))

    connection.ensure_connection()
    connection.connection.set_trace_callback(note_end)
    with connection.execute_wrapper(note):
        day_in_the_life(clock)
    connection.connection.set_trace_callback(None)
    return before, statements


@pytest.fixture
def losses(day, tmp_path):
    """What is found after the power was taken away so many times."""

    def losses(synchronous):
        recording = record(*day, synchronous=synchronous)
        with closing(sqlite3.connect(connection.settings_dict["NAME"])) as played:
            assert recording.states[-1] == state_of(played)
        assert len(recording.states) > 30
        directory = tmp_path / "found"
        directory.mkdir()
        return recording, list(power_losses(recording, directory, times=TIMES, seed=SEED))

    return losses


def test_with_full_every_acknowledged_commit_is_there_after_a_power_loss(losses):
    recording, found = losses("FULL")

    for acknowledged, state in found:
        # The one that was being written may have made it.
        assert state in recording.states[acknowledged : acknowledged + 2]


def test_with_normal_the_last_commits_may_be_lost_but_whole_and_in_order(losses):
    recording, found = losses("NORMAL")

    for acknowledged, state in found:
        assert state in recording.states[: acknowledged + 2]
    lost = [state not in recording.states[acknowledged:] for acknowledged, state in found]
    assert any(lost)


def test_power_loss_without_syncs_does_damage(losses):
    recording, found = losses("OFF")

    assert any(state not in recording.states for _, state in found)
