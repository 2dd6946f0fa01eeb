"""11.1 The file records its schema version, and a newer one is refused."""

import pytest

from django_mqlite import Draft, SchemaVersionMismatch, enqueue, enqueue_many, publish, schema
from django_mqlite.models import DeadLetter, Message, MetaEntry, Queue, Subscription
from django_mqlite.store.sqlite.base import SCHEMA
from tests.support.verbs import enqueue_and_claim

pytestmark = [pytest.mark.django_db, pytest.mark.rule("11.1")]

VERBS = {
    "enqueue": lambda: enqueue("jobs", None),
    "enqueue_many": lambda: enqueue_many("jobs", [Draft(None)]),
    "publish": lambda: publish("orders", None),
    "claim": lambda: Message.objects.claim("jobs"),
    "claim_deferred": lambda: Message.objects.claim_deferred("jobs", [1]),
    "claim_and_delete": lambda: Message.objects.claim_and_delete("jobs"),
    "claimable": Message.objects.claimable,
    "cancel": lambda: Message.objects.cancel(1),
    "peek": lambda: Message.objects.peek("jobs"),
    "redrive": lambda: DeadLetter.objects.redrive([1]),
    "redrive_queue": lambda: DeadLetter.objects.redrive_queue("jobs"),
    "purge": lambda: DeadLetter.objects.purge([1]),
    "purge_queue": lambda: DeadLetter.objects.purge_queue("jobs", everything=True),
    "create_queue": lambda: Queue.objects.create_queue("more-jobs"),
    "configure": lambda: Queue.objects.configure("jobs", lock_duration=5),
    "sync": Queue.objects.sync,
    "subscribe": lambda: Subscription.objects.subscribe("orders", "mailing"),
    "unsubscribe": lambda: Subscription.objects.unsubscribe("stock"),
}


@pytest.fixture
def write_version(clock, queue, monkeypatch):
    """Write a schema version into the file, for a process that has not read it yet."""
    Subscription.objects.subscribe("orders", "stock")

    def write_version(token):
        monkeypatch.setattr(schema, "_known", set())
        MetaEntry.objects.filter(key="schema").delete()
        if token is not None:
            MetaEntry.objects.create(key="schema", value=token)

    return write_version


def test_migrated_file_has_the_current_version(db):
    Queue.objects.sync()

    assert MetaEntry.objects.get(key="schema").value == SCHEMA


@pytest.mark.parametrize("verb", VERBS)
def test_newer_schema_is_refused_by_every_verb(write_version, verb):
    message = enqueue("jobs", None)
    write_version(str(int(SCHEMA) + 1))
    before = list(Message.objects.values()), list(Queue.objects.values())

    with pytest.raises(SchemaVersionMismatch) as caught:
        VERBS[verb]()

    assert (caught.value.found, caught.value.expected) == (str(int(SCHEMA) + 1), SCHEMA)
    assert (list(Message.objects.values()), list(Queue.objects.values())) == before
    assert before[0][0]["id"] == message.pk


@pytest.mark.parametrize("verb", ["complete", "abandon", "defer", "renew"])
def test_newer_schema_is_refused_by_every_settle(write_version, verb):
    message = enqueue_and_claim("jobs")
    write_version(str(int(SCHEMA) + 1))

    with pytest.raises(SchemaVersionMismatch):
        getattr(message, verb)()


@pytest.mark.parametrize("token", [SCHEMA, "0", None])
def test_current_older_or_missing_version_is_accepted(write_version, token):
    write_version(token)

    assert enqueue("jobs", None).pk
    assert len(Message.objects.claim("jobs")) == 1


def test_version_is_read_once(write_version, django_assert_num_queries):
    write_version(SCHEMA)
    enqueue("jobs", None)

    with django_assert_num_queries(1):
        enqueue("jobs", None)
