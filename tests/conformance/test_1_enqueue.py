"""1 Enqueue and the outbox."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_mqlite import MessageTooLarge, QueueNotFound, enqueue, enqueue_many, publish
from django_mqlite.message import Draft
from django_mqlite.models import Message, Queue
from tests.support.transactions import (
    another_connection,
    another_writer_gets_in,
    committed_messages,
)
from tests.support.verbs import claim_one, row_of

pytestmark = pytest.mark.django_db(transaction=True)


def place_order(name):
    """Create a row of the application and its message."""
    order = Group.objects.create(name=name)
    return order, enqueue("jobs", {"order": order.pk})


@pytest.mark.rule("1.1")
def test_enqueue_in_atomic_commits_with_the_callers_rows(clock, queue):
    with transaction.atomic():
        order, message = place_order("one")
        assert committed_messages() == []

    assert committed_messages() == [message.pk]
    assert claim_one("jobs").data == {"order": order.pk}


@pytest.mark.rule("1.1")
def test_enqueue_in_atomic_rolls_back_with_the_callers_rows(clock, queue):
    with pytest.raises(RuntimeError), transaction.atomic():
        place_order("one")
        raise RuntimeError

    assert committed_messages() == []
    assert not Group.objects.exists()


@pytest.mark.rule("1.1")
def test_savepoint_rollback_removes_its_messages_only(clock, queue):
    with transaction.atomic():
        _, first = place_order("one")
        with pytest.raises(RuntimeError), transaction.atomic():
            place_order("two")
            raise RuntimeError
        _, third = place_order("three")

    assert committed_messages() == [first.pk, third.pk]
    assert sorted(Group.objects.values_list("name", flat=True)) == ["one", "three"]


@pytest.mark.rule("1.1")
def test_enqueue_outside_a_transaction_commits_at_once(clock, queue):
    message = enqueue("jobs", None)

    assert committed_messages() == [message.pk]
    assert another_writer_gets_in()


@pytest.mark.rule("1.1")
def test_refused_enqueue_leaves_the_transaction_usable(clock, queue):
    with transaction.atomic():
        Group.objects.create(name="one")
        with pytest.raises(QueueNotFound):
            enqueue("job", None)
        with pytest.raises(ValueError, match="ttl"):
            enqueue("jobs", None, ttl=0)
        message = enqueue("jobs", None)

    assert committed_messages() == [message.pk]
    assert Group.objects.count() == 1


@pytest.mark.rule("1.2")
def test_enqueued_ids_increase_strictly(clock, queue):
    ids = [enqueue("jobs", number).pk for number in range(5)]

    assert ids == sorted(set(ids))
    assert [Message.objects.get(pk=id).data for id in ids] == list(range(5))


@pytest.mark.rule("1.2")
def test_committed_id_is_never_used_again(clock, queue):
    used = [enqueue("jobs", None).pk for _ in range(3)]
    Message.objects.all().delete()

    again = enqueue("jobs", None).pk

    assert again > max(used)


@pytest.mark.rule("1.3")
def test_enqueue_to_an_unknown_queue_writes_nothing(clock, queue):
    with another_connection() as other:
        (before,) = other.execute("PRAGMA data_version").fetchall()

        with pytest.raises(QueueNotFound) as caught:
            enqueue("orders", None)

        assert other.execute("PRAGMA data_version").fetchall() == [before]
    assert caught.value.queue == "orders"
    assert [queue.name for queue in Queue.objects.all()] == ["jobs"]


@pytest.mark.rule("1.4")
@pytest.mark.parametrize(("setting", "limit"), [({}, 1024 * 1024), ({"MAX_BODY_BYTES": 10}, 10)])
def test_body_above_the_limit_is_refused(clock, queue, settings, setting, limit):
    settings.MQLITE = setting

    with pytest.raises(MessageTooLarge) as caught:
        enqueue("jobs", b"x" * (limit + 1))

    assert (caught.value.size, caught.value.limit) == (limit + 1, limit)
    message = enqueue("jobs", b"x" * limit)
    assert committed_messages() == [message.pk]


@pytest.mark.rule("1.5")
@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"\x00\xffraw", b"\x00\xffraw"),
        ("naïve \U0001f418", "naïve \U0001f418".encode()),
        ({"a": [1, 2.5, None, True, "é"]}, '{"a":[1,2.5,null,true,"é"]}'.encode()),
    ],
    ids=["bytes verbatim", "text as UTF-8", "the rest as JSON"],
)
def test_message_has_its_data_and_its_raw_body(clock, queue, data, body):
    enqueue("jobs", data)

    message = claim_one("jobs")

    assert message.body == body
    assert message.data == data
    assert type(message.data) is type(data)


@pytest.mark.rule("1.5")
@pytest.mark.parametrize(
    ("data", "error", "named"),
    [
        ({"a": [float("nan")]}, ValueError, "nan"),
        ({"a": {1: 2}}, TypeError, "1"),
        ({"a": {"b": b"bytes"}}, TypeError, "b'bytes'"),
        ([object], TypeError, "object"),
    ],
    ids=["NaN", "key", "bytes inside", "class"],
)
def test_data_that_json_cannot_represent_is_refused_before_any_sql(
    clock, queue, data, error, named, django_assert_num_queries
):
    with django_assert_num_queries(0), pytest.raises(error, match=named):
        enqueue("jobs", data)


DJANGO = "django.core.serializers.json.DjangoJSONEncoder"


@pytest.mark.rule("1.5")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    ],
    ids=["datetime", "Decimal", "UUID"],
)
def test_encoder_of_the_settings_encodes_and_data_stays_plain(clock, queue, settings, value, text):
    settings.MQLITE = {"ENCODER": DJANGO}

    enqueue("jobs", {"at": [value]})
    enqueue_many("jobs", [{"at": [value]}])

    for message in Message.objects.claim("jobs", limit=2):
        assert message.data == {"at": [text]}


@pytest.mark.rule("1.5")
@pytest.mark.parametrize(
    ("data", "error"),
    [({"a": [object()]}, TypeError), ({"a": [float("nan")]}, ValueError), ({1: 2}, TypeError)],
    ids=["class", "NaN", "key"],
)
def test_encoder_of_the_settings_keeps_json_strict(clock, queue, settings, data, error):
    settings.MQLITE = {"ENCODER": DJANGO}

    with pytest.raises(error, match=r"data"):
        enqueue("jobs", data)

    assert not Message.objects.exists()


@pytest.mark.rule("1.7")
def test_zero_is_a_value_for_delay_and_priority_but_not_for_ttl(clock, queue):
    message = enqueue("jobs", 0, delay=0, priority=0)

    assert (message.state, message.visible_at, message.priority) == ("active", clock.now, 0)
    assert message.data == 0
    with pytest.raises(ValueError, match="ttl"):
        enqueue("jobs", None, ttl=0)


@pytest.mark.rule("1.7")
@pytest.mark.parametrize("name", ["priority", "max_delivery_count"])
def test_number_of_more_than_64_bits_is_refused(clock, queue, name):
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(ValueError, match=name):
            enqueue("jobs", None, **{name: value})

    assert committed_messages() == []


def test_enqueue_stores_every_option(clock, queue):
    options = {
        "priority": 3, "max_delivery_count": 4, "message_id": "m", "correlation_id": "c",
        "reply_to": "answers", "subject": "order.placed", "content_type": "application/x-order",
        "properties": {"tenant": "a"},
    }  # fmt: skip

    message = enqueue("jobs", b"data", delay=5, ttl=60, **options)

    row = row_of(message)
    assert {name: row[name] for name in options} == options
    assert (row["queue"], row["state"], bytes(row["body"])) == ("jobs", "scheduled", b"data")
    assert (row["enqueued_at"], row["delivery_count"]) == (clock.now, 0)
    assert row["visible_at"] == clock.now + timedelta(seconds=5)
    assert row["expires_at"] == clock.now + timedelta(seconds=65)


@pytest.mark.rule("1.7")
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "publish"])
def test_unknown_option_is_refused_with_a_suggestion(queue, verb):
    wrong = {"dealy": 3}
    call = {
        "enqueue": lambda: enqueue("jobs", None, **wrong),
        "enqueue_many": lambda: Message.objects.enqueue_many("jobs", [Draft(None, **wrong)]),
        "publish": lambda: publish("news", None, **wrong),
    }[verb]

    with pytest.raises(TypeError, match="no option 'dealy'; did you mean 'delay'"):
        call()

    assert not Message.objects.exists()
