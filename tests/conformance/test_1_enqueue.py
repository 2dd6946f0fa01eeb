"""1 Enqueue and the outbox."""

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_mqlite import MessageTooLarge, QueueNotFound, enqueue, publish
from django_mqlite.message import Draft
from django_mqlite.models import Message, Queue
from tests.support.transactions import (
    another_connection,
    another_writer_gets_in,
    committed_messages,
)
from tests.support.verbs import claim_one

pytestmark = pytest.mark.django_db(transaction=True)


def place_order(name):
    """A row of the application and its message."""
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
def test_a_savepoint_rollback_removes_the_message_and_no_other(clock, queue):
    with transaction.atomic():
        _, first = place_order("one")
        with pytest.raises(RuntimeError), transaction.atomic():
            place_order("two")
            raise RuntimeError
        _, third = place_order("three")

    assert committed_messages() == [first.pk, third.pk]
    assert sorted(Group.objects.values_list("name", flat=True)) == ["one", "three"]


@pytest.mark.rule("1.1")
def test_outside_a_transaction_a_message_commits_by_itself(clock, queue):
    message = enqueue("jobs", None)

    assert committed_messages() == [message.pk]
    assert another_writer_gets_in()


@pytest.mark.rule("1.1")
def test_an_enqueue_that_is_refused_leaves_the_callers_transaction_usable(clock, queue):
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
def test_the_returned_id_is_the_stored_one_and_strictly_increasing(clock, queue):
    ids = [enqueue("jobs", number).pk for number in range(5)]

    assert ids == sorted(set(ids))
    assert [Message.objects.get(pk=id).data for id in ids] == list(range(5))


@pytest.mark.rule("1.2")
def test_an_id_is_never_reused_by_anything_that_was_committed(clock, queue):
    used = [enqueue("jobs", None).pk for _ in range(3)]
    Message.objects.all().delete()

    again = enqueue("jobs", None).pk

    assert again > max(used)


@pytest.mark.rule("1.3")
def test_an_unknown_queue_is_refused_before_anything_is_written_and_none_is_created(clock, queue):
    with another_connection() as other:
        (before,) = other.execute("PRAGMA data_version").fetchall()

        with pytest.raises(QueueNotFound) as caught:
            enqueue("orders", None)

        assert other.execute("PRAGMA data_version").fetchall() == [before]
    assert caught.value.queue == "orders"
    assert [queue.name for queue in Queue.objects.all()] == ["jobs"]


@pytest.mark.rule("1.4")
def test_a_body_over_one_mebibyte_is_message_too_large(clock, queue):
    limit = 1024 * 1024

    with pytest.raises(MessageTooLarge) as caught:
        enqueue("jobs", b"x" * (limit + 1))

    assert (caught.value.size, caught.value.limit) == (limit + 1, limit)
    assert enqueue("jobs", b"x" * limit)
    assert len(committed_messages()) == 1


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
def test_data_gives_back_what_went_in_and_body_the_raw_bytes(clock, queue, data, body):
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
def test_what_json_does_not_have_is_refused_by_name_before_any_sql(
    clock, queue, data, error, named, django_assert_num_queries
):
    with django_assert_num_queries(0), pytest.raises(error, match=named):
        enqueue("jobs", data)


@pytest.mark.rule("1.7")
def test_zero_is_a_value_for_delay_and_priority_and_refused_for_ttl(clock, queue):
    message = enqueue("jobs", 0, delay=0, priority=0)

    assert (message.state, message.visible_at, message.priority) == ("active", clock.now, 0)
    assert message.data == 0
    with pytest.raises(ValueError, match="ttl"):
        enqueue("jobs", None, ttl=0)


@pytest.mark.rule("1.7")
@pytest.mark.parametrize("name", ["priority", "max_delivery_count"])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_numbers_outside_63_bits_are_refused(clock, queue, name, value):
    with pytest.raises(ValueError, match=name):
        enqueue("jobs", None, **{name: value})

    assert committed_messages() == []


@pytest.mark.rule("1.7")
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "publish"])
def test_an_option_that_there_is_not_is_refused_with_the_one_that_was_meant(queue, verb):
    wrong = {"dealy": 3}
    call = {
        "enqueue": lambda: enqueue("jobs", None, **wrong),
        "enqueue_many": lambda: Message.objects.enqueue_many("jobs", [Draft(None, **wrong)]),
        "publish": lambda: publish("news", None, **wrong),
    }[verb]

    with pytest.raises(TypeError, match="no option 'dealy'; did you mean 'delay'"):
        call()

    assert not Message.objects.exists()
