"""1.6 Enqueue many messages."""

import pytest
from django.contrib.auth.models import Group
from django.db import Error, connection, transaction

from django_mqlite import (
    Draft,
    GroupRequired,
    MessageTooLarge,
    PriorityRefused,
    enqueue,
    enqueue_many,
)
from django_mqlite.models import Message
from django_mqlite.verbs import enqueue as enqueue_verbs
from tests.support.transactions import committed_messages
from tests.support.verbs import claim_ids, row_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("1.6")]

MIXED = [b"", "", None, {"a": [1, "é", None]}, b"\x00\xff\x00", "\U0001f418", 0, [], b"x" * 100_000]


@pytest.fixture
def chunks_of_three(monkeypatch):
    monkeypatch.setattr(enqueue_verbs, "CHUNK_ROWS", 3)


def data_of(messages):
    return [Message.objects.get(pk=message.pk).data for message in messages]


def test_ids_increase_in_the_order_of_the_items(clock, queue):
    messages = enqueue_many("jobs", range(2_500))

    ids = [message.pk for message in messages]
    assert ids == sorted(set(ids))
    assert [message.data for message in messages] == list(range(2_500))
    assert [m.data for m in Message.objects.order_by("pk")] == list(range(2_500))


@pytest.fixture
def inserts():
    """The parameters of each INSERT into the messages."""
    parameters = []

    def watch(execute, sql, params, *arguments):
        if "INSERT INTO mqlite_messages" in sql:
            parameters.append(params)
        return execute(sql, params, *arguments)

    with connection.execute_wrapper(watch):
        yield parameters


def test_each_chunk_is_one_statement_with_few_parameters(clock, queue, inserts):
    enqueue_many("jobs", range(2_500))

    assert len(inserts) == 3
    assert max(map(len, inserts)) < 999  # the lowest limit of any SQLite


@pytest.mark.parametrize("items", [MIXED, [b"", b""], [""], [b""] * 4], ids=len)
@pytest.mark.parametrize("rows", [1, 3, 1_000])
def test_bodies_are_stored_unchanged(clock, queue, items, rows, monkeypatch):
    monkeypatch.setattr(enqueue_verbs, "CHUNK_ROWS", rows)

    messages = enqueue_many("jobs", items)

    assert data_of(messages) == items
    assert [message.data for message in Message.objects.claim("jobs", limit=99)] == items


def test_chunk_is_limited_in_bytes(clock, queue, monkeypatch, inserts):
    monkeypatch.setattr(enqueue_verbs, "CHUNK_BYTES", 10)
    items = [b"12345", b"67890", b"a", b"", b"x" * 30, b"b"]

    messages = enqueue_many("jobs", items)

    assert [len(parameters["bodies"]) for parameters in inserts] == [10, 1, 30, 1]
    assert data_of(messages) == items


OPTIONS = {
    "plain": {},
    "scheduled": {"delay": 60},
    "scheduled for now": {"delay": 0},
    "short-lived": {"ttl": 5},
    "longer-lived than the queue allows": {"ttl": 3_600, "delay": 7},
    "first": {"priority": 2**63 - 1},
    "last": {"priority": -(2**63) + 1},
    "with a bound": {"max_delivery_count": 3},
    "grouped": {"group_id": "g \U0001f418"},
    "with headers": {
        "message_id": "m",
        "correlation_id": "c",
        "reply_to": "r",
        "subject": "a.b\n\"'\\",
        "content_type": "text/x",
        "properties": {"k": "é", "": ""},
    },
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("default_ttl", [0, 60])
def test_draft_is_stored_as_if_enqueued_alone(clock, make_queue, name, default_ttl):
    make_queue("one", default_ttl=default_ttl)
    make_queue("many", default_ttl=default_ttl)
    alone = enqueue("one", "data", **OPTIONS[name])

    (_, together) = enqueue_many("many", ["other", Draft("data", **OPTIONS[name])])

    expected = row_of(alone) | {"id": together.pk, "queue": "many"}
    assert row_of(together) == expected
    assert {name: getattr(together, name) for name in expected} == expected


def test_options_of_a_draft_override_the_common_ones(clock, queue):
    plain, own = enqueue_many(
        "jobs", ["a", Draft("b", priority=0, delay=None)], priority=7, delay=60, subject="s"
    )

    assert (plain.priority, plain.subject, plain.state) == (7, "s", "scheduled")
    assert (own.priority, own.subject, own.state) == (0, "s", "active")


def test_group_in_a_batch_is_a_line(clock, group_queue):
    items = [Draft(number, group_id="ab"[number % 2]) for number in range(6)]

    ids = [message.pk for message in enqueue_many("groups", items)]

    assert claim_ids("groups") == ids[:2]


INVALID = [
    (lambda: float("nan"), ValueError),
    (lambda: b"x" * (1024 * 1024 + 1), MessageTooLarge),
    (lambda: Draft(1, priority=1, group_id="g"), PriorityRefused),
    (lambda: Draft(1, ttl=0), ValueError),
    (object, TypeError),
]


@pytest.mark.parametrize(("make", "error"), INVALID, ids=range(len(INVALID)))
def test_invalid_item_refuses_the_batch_before_any_sql(
    clock, queue, django_assert_num_queries, make, error
):
    with django_assert_num_queries(0), pytest.raises(error):
        enqueue_many("jobs", ["good", make(), "good"])


def test_item_that_the_queue_refuses_refuses_the_batch(
    clock, group_queue, strict_queue, chunks_of_three
):
    with pytest.raises(GroupRequired):
        enqueue_many("groups", [*(Draft(n, group_id="g") for n in range(5)), "no group"])
    with pytest.raises(PriorityRefused):
        enqueue_many("strict", [*range(5), Draft(5, priority=1)])

    assert not Message.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_failed_chunk_undoes_the_earlier_chunks(clock, queue, chunks_of_three):
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TRIGGER full_disk BEFORE INSERT ON main.mqlite_messages"
            " WHEN NEW.subject = 'boom' BEGIN SELECT RAISE(ABORT, 'no space'); END"
        )
    try:
        with pytest.raises(Error, match="no space"):
            enqueue_many("jobs", [*range(7), Draft(7, subject="boom")])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER full_disk")

    assert committed_messages() == []
    assert len(enqueue_many("jobs", range(7))) == 7


def test_empty_batch_stores_nothing(clock, queue, make_queue):
    make_queue("window", dedup_window=60)

    assert enqueue_many("jobs", []) == []
    assert enqueue_many("window", iter(())) == []
    assert not Message.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_batch_in_atomic_commits_with_the_callers_rows(clock, queue):
    with pytest.raises(RuntimeError), transaction.atomic():
        Group.objects.create(name="order")
        enqueue_many("jobs", range(3))
        raise RuntimeError
    assert committed_messages() == []

    with transaction.atomic():
        Group.objects.create(name="order")
        messages = enqueue_many("jobs", range(3))
        assert committed_messages() == []

    assert committed_messages() == [message.pk for message in messages]
    assert Group.objects.count() == 1


@pytest.mark.rule("1.6")
@pytest.mark.parametrize("data", ["abc", b"abc", {"a": 1}], ids=["str", "bytes", "dict"])
def test_single_message_instead_of_a_batch_is_refused(queue, data):
    with pytest.raises(TypeError, match="items must be a sequence of messages"):
        enqueue_many("jobs", data)

    assert not Message.objects.exists()
