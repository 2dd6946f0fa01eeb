"""mqlite doctor."""

import json
import sqlite3

import pytest
from django.core.management import CommandError
from django.db import OperationalError, connection

from django_mqlite import doctor
from django_mqlite.models import Message
from django_mqlite.verbs import database_file
from tests.support.workers import ALIAS

from .calls import answer, failed, mqlite

FACTS = {
    "path", "size", "free", "unused", "wal_size", "incremental_vacuum", "journal_mode",
    "synchronous", "sqlite_version", "sqlite_source", "wal_reset_bug", "integrity_checked",
    "paused_schedules",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("healthy_machine")


def test_doctor_of_a_healthy_project_has_facts_and_no_findings(db):
    document = answer("doctor")

    assert document["healthy"] is True
    assert document["findings"] == []
    facts = document["facts"]
    assert set(facts) == FACTS
    assert facts["sqlite_version"] == sqlite3.sqlite_version
    assert facts["size"] > 100_000
    assert (facts["journal_mode"], facts["integrity_checked"]) == ("wal", True)


def test_doctor_says_in_words_that_there_are_no_problems(db):
    text = mqlite("doctor")

    assert text.startswith("No problems found.\nSQLite ")
    assert "without the WAL-reset bug" in text
    assert "journal mode: wal, synchronous: FULL" in text
    assert "integrity: not checked" in mqlite("doctor", "--quick")


def test_doctor_without_dbstat_leaves_out_fragmentation(db, monkeypatch):
    monkeypatch.setattr(doctor, "unused_bytes", lambda using: None)

    assert "fragmentation" not in mqlite("doctor")


@pytest.mark.parametrize("silenced", [False, True])
def test_warning_of_a_check_has_its_advice_unless_silenced(db, monkeypatch, settings, silenced):
    monkeypatch.setattr(connection.Database, "sqlite_version_info", (3, 40, 1))
    monkeypatch.setattr(doctor, "has_wal_reset_bug", lambda version: True)
    settings.SILENCED_SYSTEM_CHECKS = ["mqlite.W001"] if silenced else []

    text = mqlite("doctor")

    warning = "WARNING (mqlite.W001): SQLite 3.40.1 has the WAL-reset bug"
    assert (warning in text) == (not silenced)
    assert ("See django-mqlite's docs/checks.md#mqlitew001." in text) == (not silenced)
    assert "has the WAL-reset bug;" in text


def test_error_of_a_check_is_an_error_of_the_doctor(db, settings):
    settings.MQLITE = {"QUEUE": {}}

    document = json.loads(failed("doctor", "--json"))

    assert document["healthy"] is False
    assert document["findings"][0]["id"] == "mqlite.E001"


def test_damaged_file_is_an_error_unless_quick(database):
    for column, other_column in (("(subject)", "(reply_to)"), ("(reply_to)", "(subject)")):
        with database.other_program() as other:
            other.execute("PRAGMA writable_schema = ON")
            other.execute(
                "UPDATE sqlite_master SET sql = replace(sql, ?, ?)"
                " WHERE name = 'mqlite_messages_subject'",
                [column, other_column],
            )
        database.enqueue("jobs", 1, subject="in the index", reply_to="not in the index")
    database.close()

    document = json.loads(failed("doctor", "--json", "--database", ALIAS))

    damages = [finding for finding in document["findings"] if finding["id"] == "damaged"]
    assert damages
    assert all("The file is damaged: " in finding["text"] for finding in damages)
    assert answer("doctor", "--quick", "--database", ALIAS)["healthy"] is True


def test_message_without_a_queue_is_damage(database):
    with database.other_program() as other:
        other.execute("PRAGMA foreign_keys = OFF")
        other.execute(
            "INSERT INTO mqlite_messages (queue, enqueued_at, body) VALUES ('nowhere', 0, x'')"
        )

    assert database_file.find_damage(ALIAS) == [
        "a row of mqlite_messages refers to a missing row of mqlite_queues"
    ]


@pytest.mark.parametrize(
    ("facts", "id", "advice"),
    [
        ({"wal_size": 2**28}, "large_wal", "end long transactions"),
        ({"size": 2**30, "free": 2**29}, "free_pages", "mqlite vacuum --full"),
        ({"size": 2**30, "free": 2**29, "incremental": True}, "free_pages", "mqlite vacuum`"),
        ({"size": 10**16}, "low_disk_space", "Free disk space"),
        ({"wal_size": 2**20}, None, None),
        ({"size": 2**20, "free": 2**19}, None, None),
        ({"size": 2**30, "free": 2**25}, None, None),
    ],
)
def test_file_above_a_threshold_is_a_warning_with_advice(db, monkeypatch, facts, id, advice):
    storage = database_file.storage("default")
    values = {name: getattr(storage, name) for name in storage.__slots__} | facts
    monkeypatch.setattr(doctor, "storage", lambda using: database_file.Storage(**values))

    findings = doctor.diagnose("default", thorough=False).findings

    assert [(finding.level, finding.id) for finding in findings] == [("warning", id)] * bool(id)
    assert all(advice in finding.advice for finding in findings)


def test_queue_without_a_worker_is_a_warning(queue, clock, start_worker):
    Message.objects.enqueue("jobs", 1)
    clock.advance(59)

    (finding,) = doctor.diagnose("default", thorough=False).findings
    start_worker("jobs")

    assert finding.text == "Queue jobs has due messages, but no live worker serves it."
    assert mqlite("doctor").startswith("No problems found.")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("disk I/O error", "the disk is full or failing"),
        ("malformed database schema (mqlite_messages_locked)", "the file is damaged; stop"),
    ],
)
def test_unreadable_database_is_an_error_with_advice(db, monkeypatch, error, advice):
    def fail(using):
        raise OperationalError(error)

    monkeypatch.setattr(doctor, "storage", fail)

    with pytest.raises(CommandError) as caught:
        mqlite("doctor")

    assert f"{error} ({advice}" in str(caught.value)
