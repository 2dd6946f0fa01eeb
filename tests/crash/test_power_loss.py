"""10.6 The power fails at any instant while the verbs write."""

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
"""Of the instants and of the lost writes; any other number will do."""


def call_every_verb(clock) -> None:
    """Call every verb, with some bodies of several pages."""
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
def recorded(clock, queue, tmp_path):
    """A copy of the database before the verbs, and their statements."""
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
        call_every_verb(clock)
    connection.connection.set_trace_callback(None)
    return before, statements


@pytest.fixture
def losses(recorded, tmp_path):
    """Record the statements, and return the states after many power losses."""

    def losses(synchronous):
        recording = record(*recorded, synchronous=synchronous)
        with closing(sqlite3.connect(connection.settings_dict["NAME"])) as played:
            assert recording.states[-1] == state_of(played)
        assert len(recording.states) > 30
        directory = tmp_path / "losses"
        directory.mkdir()
        return recording, power_losses(recording, directory, times=TIMES, seed=SEED)

    return losses


def test_synchronous_full_keeps_every_acknowledged_commit(losses):
    recording, states = losses("FULL")

    for acknowledged, state in states:
        # The commit that was being written may be complete.
        assert state in recording.states[acknowledged : acknowledged + 2]


def test_synchronous_normal_may_lose_the_last_commits_as_a_whole(losses):
    recording, states = losses("NORMAL")
    lost = 0

    for acknowledged, state in states:
        assert state in recording.states[: acknowledged + 2]
        lost += state not in recording.states[acknowledged:]

    assert lost > 0


def test_synchronous_off_damages_the_file(losses):
    recording, states = losses("OFF")

    assert any(state not in recording.states for _, state in states)
