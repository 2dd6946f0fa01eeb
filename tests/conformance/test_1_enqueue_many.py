"""1.6 Many messages in one go."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import Error, connection, transaction

from django_mqlite import (
    Draft,
    GroupRequired,
    MessageTooLarge,
    PriorityRefused,
    QueueNotFound,
    enqueue,
    enqueue_many,
)
from django_mqlite.models import Message
from django_mqlite.verbs import enqueue as enqueue_verbs
from tests.support.transactions import committed_messages
from tests.support.verbs import claim_ids, row_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("1.6")]

MIXED = [b"", "", None, {"a": [1, "é", None]}, b"\x00\xff\x00", "\U0001f418", 0, [], b"x" * 5_000]


@pytest.fixture
def chunks_of_three(monkeypatch):
    monkeypatch.setattr(enqueue_verbs, "CHUNK_ROWS", 3)


def data_of(messages):
    return [Message.objects.get(pk=message.pk).data for message in messages]


def test_ids_rise_in_the_order_given_over_all_chunks(clock, queue):
    messages = enqueue_many("jobs", range(2_500))

    ids = [message.pk for message in messages]
    assert ids == sorted(set(ids))
    assert [message.data for message in messages] == list(range(2_500))
    assert [m.data for m in Message.objects.order_by("pk")] == list(range(2_500))


def test_each_chunk_is_one_statement_with_few_variables(clock, queue):
    inserts = []

    def watch(execute, sql, params, *arguments):
        if "INSERT INTO mqlite_messages" in sql:
            inserts.append(len(params))
        return execute(sql, params, *arguments)

    with connection.execute_wrapper(watch):
        enqueue_many("jobs", range(2_500))

    assert len(inserts) == 3
    assert max(inserts) < 999  # what the most frugal SQLite allows


@pytest.mark.parametrize("items", [MIXED, [b"", b""], [""], [b""] * 4], ids=len)
@pytest.mark.parametrize("rows", [1, 3, 1_000])
def test_bodies_come_back_as_they_went_in(clock, queue, items, rows, monkeypatch):
    monkeypatch.setattr(enqueue_verbs, "CHUNK_ROWS", rows)

    messages = enqueue_many("jobs", items)

    assert data_of(messages) == items
    assert [message.data for message in Message.objects.claim("jobs", limit=99)] == items


def test_a_chunk_is_also_bounded_in_bytes(clock, queue, monkeypatch):
    monkeypatch.setattr(enqueue_verbs, "CHUNK_BYTES", 10)
    items = [b"12345", b"67890", b"a", b"", b"x" * 30, b"b"]
    sizes = []

    def watch(execute, sql, params, *arguments):
        if "INSERT INTO mqlite_messages" in sql:
            sizes.append(len(params["bodies"]))
        return execute(sql, params, *arguments)

    with connection.execute_wrapper(watch):
        messages = enqueue_many("jobs", items)

    assert sizes == [10, 1, 30, 1]
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
def test_a_draft_is_stored_as_if_it_had_been_sent_alone(clock, make_queue, name, default_ttl):
    make_queue("one", default_ttl=default_ttl)
    make_queue("many", default_ttl=default_ttl)
    alone = enqueue("one", "data", **OPTIONS[name])

    (_, together) = enqueue_many("many", ["other", Draft("data", **OPTIONS[name])])

    expected = row_of(alone) | {"id": together.pk, "queue": "many"}
    assert row_of(together) == expected


def test_a_drafts_options_win_over_the_common_ones(clock, queue):
    plain, own = enqueue_many(
        "jobs", ["a", Draft("b", priority=0, delay=None)], priority=7, delay=60, subject="s"
    )

    assert (plain.priority, plain.subject, plain.state) == (7, "s", "scheduled")
    assert (own.priority, own.subject, own.state) == (0, "s", "active")


def test_what_is_returned_is_what_is_stored(clock, make_queue):
    make_queue("jobs", default_ttl=60)
    messages = enqueue_many("jobs", ["a", Draft("b", group_id="g", delay=1), Draft("c", ttl=2)])

    for message in messages:
        stored = Message.objects.filter(pk=message.pk).values().get()
        assert {name: getattr(message, name) for name in stored} == stored
    assert messages[2].expires_at == clock.now + timedelta(seconds=2)


def test_a_group_in_a_batch_is_a_line_in_the_order_given(clock, group_queue):
    items = [Draft(number, group_id="ab"[number % 2]) for number in range(6)]

    ids = [message.pk for message in enqueue_many("groups", items)]

    assert claim_ids("groups") == ids[:2]


WRONG = [
    (lambda: float("nan"), ValueError),
    (lambda: b"x" * (1024 * 1024 + 1), MessageTooLarge),
    (lambda: Draft(1, priority=1, group_id="g"), PriorityRefused),
    (lambda: Draft(1, ttl=0), ValueError),
    (object, TypeError),
]


@pytest.mark.parametrize(("make_wrong", "error"), WRONG, ids=range(len(WRONG)))
def test_one_wrong_item_stops_all_before_any_sql(
    clock, queue, django_assert_num_queries, make_wrong, error
):
    with django_assert_num_queries(0), pytest.raises(error):
        enqueue_many("jobs", ["good", make_wrong(), "good"])


def test_one_item_the_queue_refuses_stops_all(clock, group_queue, strict_queue, chunks_of_three):
    with pytest.raises(GroupRequired):
        enqueue_many("groups", [*(Draft(n, group_id="g") for n in range(5)), "no group"])
    with pytest.raises(PriorityRefused):
        enqueue_many("strict", [*range(5), Draft(5, priority=1)])

    assert not Message.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_failure_in_a_later_chunk_undoes_the_earlier_ones(clock, queue, chunks_of_three):
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


@pytest.mark.parametrize("items", [["a"], []])
def test_an_unknown_queue_is_refused_even_for_nothing(clock, queue, items):
    with pytest.raises(QueueNotFound):
        enqueue_many("job", items)


def test_nothing_is_stored_for_an_empty_list(clock, queue, make_queue):
    make_queue("window", dedup_window=60)

    assert enqueue_many("jobs", []) == []
    assert enqueue_many("window", iter(())) == []
    assert not Message.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_in_atomic_the_batch_is_the_callers(clock, queue):
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


@pytest.mark.django_db(transaction=True)
def test_a_refused_batch_leaves_the_callers_transaction_usable(clock, queue, group_queue):
    with transaction.atomic():
        Group.objects.create(name="order")
        with pytest.raises(GroupRequired):
            enqueue_many("groups", [Draft(1, group_id="g"), "no group"])
        messages = enqueue_many("jobs", [1])

    assert committed_messages() == [message.pk for message in messages]
    assert Group.objects.count() == 1


@pytest.mark.rule("1.6")
@pytest.mark.parametrize("one", ["abc", b"abc", {"a": 1}], ids=["str", "bytes", "dict"])
def test_one_message_instead_of_many_is_refused(queue, one):
    with pytest.raises(TypeError, match="items must be a sequence of messages"):
        enqueue_many("jobs", one)

    assert not Message.objects.exists()
