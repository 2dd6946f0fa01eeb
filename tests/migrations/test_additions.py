"""A schema with the additions that a minor release may make works with this release."""

import pytest
from django.db import connection, connections

from django_mqlite import publish
from django_mqlite.models import DeadLetter, Message, Queue, Subscription
from tests.support.verbs import activate, claim_one, enqueue_and_claim, reap
from tests.support.workers import ALIAS


def add(connection):
    """Add a column with a default to each table, an index and a table."""
    with connection.cursor() as cursor:
        tables = [
            name for name in connection.introspection.table_names() if name.startswith("mqlite_")
        ]
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} ADD COLUMN later TEXT NOT NULL DEFAULT 'x'")
        cursor.execute("CREATE INDEX mqlite_messages_later ON mqlite_messages (later, queue)")
        cursor.execute("CREATE TABLE mqlite_later (id INTEGER PRIMARY KEY) STRICT")
    return tables


@pytest.mark.django_db
def test_verbs_work_on_a_schema_with_additions(clock, queue, make_queue):
    assert len(add(connection)) == 8
    make_queue("kept", retain_completed=60, dedup_window=60)
    Subscription.objects.subscribe("orders", "stock")

    publish("orders", 1)
    claim_one("stock", attempt_id="a").complete()
    message = enqueue_and_claim("kept", 1)
    message.renew(60)
    message.complete()
    assert Message.objects.enqueue("kept", 1).duplicate
    message = enqueue_and_claim("jobs", 2)
    message.abandon(delay=5, error="boom")
    clock.advance(5)
    assert activate() == 1
    claim_one("jobs")
    clock.advance(60)
    assert len(reap()) == 1
    claim_one("jobs").reject("Broken")
    assert DeadLetter.objects.redrive([message.pk], into="kept") == 1
    claim_one("kept").defer()

    deferred = Message.objects.get(state="deferred")
    assert deferred.explain().code == "deferred"
    assert Queue.objects.sync() == []


def test_worker_works_on_a_schema_with_additions(database):
    add(connections[ALIAS])
    messages = database.enqueue_many("jobs", 3)

    assert database.start("--burst").ended_well()

    assert sorted(database.handled()) == messages
    assert database.left() == 0
