"""8.6 Times and JSON that another program wrote."""

import pytest
from django.db import IntegrityError, connection, transaction

from django_mqlite import enqueue, handler, handlers
from django_mqlite.fields import EpochMillisecondsField
from django_mqlite.models import (
    AccessKey,
    DeadLetter,
    Dedup,
    Message,
    MetaEntry,
    Queue,
    ReceiveAttempt,
    SettlementReceipt,
    Subscription,
)
from django_mqlite.testing import drain
from django_mqlite.timing import FIRST, LAST
from tests.support.verbs import state_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("8.6")]

TOO_LATE = 253_402_300_800_000
"""The first millisecond of the year 10000."""

TIMES = [
    (model._meta.db_table, field.column)
    for model in (
        Queue,
        Message,
        Subscription,
        AccessKey,
        Dedup,
        MetaEntry,
        ReceiveAttempt,
        SettlementReceipt,
    )
    for field in model._meta.local_concrete_fields
    if isinstance(field, EpochMillisecondsField)
]

REQUIRED = {
    "mqlite_queues": {"name": "q", "created_at": 0, "updated_at": 0},
    "mqlite_messages": {"queue": "jobs", "enqueued_at": 0, "body": b""},
    "mqlite_subscriptions": {"subscription": "jobs", "topic": "t", "created_at": 0},
    "mqlite_access_keys": {"digest": "0" * 64, "name": "n", "created_at": 0},
    "mqlite_dedup": {"queue": "jobs", "key": "k", "data_sha256": "", "message": 1},
    "mqlite_meta": {"key": "k", "value": "", "updated_at": 0},
    "mqlite_receive_attempts": {"queue": "jobs", "attempt_id": "a", "leases": "[]"},
    "mqlite_settlement_receipts": {
        "message": 1,
        "lock_token": "t",
        "queue": "jobs",
        "verb": "defer",
        "arguments": "",
    },
}


def insert(table, **values):
    values = {**REQUIRED[table], **values}
    marks = ", ".join(["%s"] * len(values))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", [*values.values()]
        )


def foreign_update(message, **columns):
    """Update columns past the constraints of the table."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        for column, value in columns.items():
            cursor.execute(
                f"UPDATE mqlite_messages SET {column} = %s WHERE id = %s", [value, message.pk]
            )
        cursor.execute("PRAGMA ignore_check_constraints = OFF")


@pytest.mark.parametrize("at", [TOO_LATE, 2**63 - 1, -1])
@pytest.mark.parametrize(("table", "column"), TIMES)
def test_table_refuses_times_that_python_cannot_read(queue, table, column, at):
    with pytest.raises(IntegrityError, match=column), transaction.atomic():
        insert(table, **{column: at})

    insert(table, **{column: TOO_LATE - 1})


@pytest.mark.parametrize(
    ("at", "read_as"), [(TOO_LATE, LAST), (2**63 - 1, LAST), (-(2**62), FIRST)]
)
def test_message_with_unreadable_times_is_delivered(queue, at, read_as):
    message, neighbour = enqueue("jobs", 1), enqueue("jobs", 2)
    foreign_update(message, enqueued_at=at, visible_at=at)

    messages = Message.objects.claim("jobs", limit=2)

    assert [m.pk for m in messages] == [message.pk, neighbour.pk]
    assert messages[0].enqueued_at == read_as
    assert Message.objects.get(pk=message.pk).visible_at == read_as


DAMAGES = {
    "number too long": {"properties": '{"n": %s}' % ("1" * 5_000)},
    "nested too deeply": {"properties": "[" * 990 + "]" * 990},
    "properties are a list": {"properties": "[1]"},
    "properties are a text": {"properties": '"x"'},
    "properties are no JSON": {"properties": "{"},
    "errors are an object": {"errors": '{"a": 1}'},
}

CLAIMS = {
    "claim": lambda: Message.objects.claim("jobs", limit=3),
    "exchange": lambda: Message.objects.settle_and_claim([], ["jobs"], limit=3, worker="w")[1],
    "drain": None,
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_message_is_dead_and_the_others_are_delivered(queue, monkeypatch, damage, claim):
    before, message, after = (enqueue("jobs", n) for n in range(3))
    foreign_update(message, **DAMAGES[damage])
    delivered = []
    if claim == "drain":
        monkeypatch.setattr(handlers, "_handlers", {})
        handler("jobs")(lambda message: delivered.append(message.pk))
        drain()
    else:
        delivered = [m.pk for m in CLAIMS[claim]()]

    assert delivered == [before.pk, after.pk]
    assert state_of(message) == "dead_lettered"
    assert DeadLetter.objects.get(pk=message.pk).dead_letter_reason == "Unreadable"
