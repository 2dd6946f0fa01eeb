"""assert_enqueued(): messages and tasks that wait in a queue."""

import pytest

from django_mqlite import QueueNotFound, enqueue
from tests.integration.tasks.calls import echo, note
from tests.support.verbs import claim_one, dead_letter

pytestmark = pytest.mark.django_db


def test_waiting_messages_are_returned_oldest_first(queue, assert_enqueued):
    first, later = enqueue("jobs", {"to": 7}), enqueue("jobs", {"to": 7}, delay=60)
    enqueue("jobs", {"to": 8})

    messages = assert_enqueued("jobs", data={"to": 7}, count=2)

    assert [message.pk for message in messages] == [first.pk, later.pk]
    assert len(assert_enqueued("jobs")) == 3


@pytest.mark.parametrize("count", [None, 1, 3])
def test_wrong_count_fails_and_lists_waiting_messages(queue, assert_enqueued, count):
    enqueue("jobs", {"to": 8})

    with pytest.raises(
        AssertionError,
        match=r"has 0 matching messages, .*\. Waiting messages:\n#\d+ active.*'to': 8",
    ):
        assert_enqueued("jobs", data={"to": 7}, count=count)


def test_count_of_zero_expects_an_empty_queue(queue, assert_enqueued):
    assert assert_enqueued("jobs", count=0) == []
    with pytest.raises(AssertionError, match="No messages are waiting"):
        assert_enqueued("jobs")

    enqueue("jobs", None)
    with pytest.raises(AssertionError, match="has 1 matching messages, expected 0"):
        assert_enqueued("jobs", count=0)


def test_locked_and_dead_lettered_messages_do_not_wait(queue, assert_enqueued):
    enqueue("jobs", None)
    claim_one("jobs")
    dead_letter("jobs")

    assert_enqueued("jobs", count=0)


def test_task_is_matched_by_arguments_and_queue(make_queue, assert_enqueued):
    make_queue("default")
    make_queue("mails")
    note.enqueue(1, two=3)
    echo.enqueue("x")
    echo.using(queue_name="mails").enqueue("x")

    for count, arguments in (
        (1, {"task": note}),
        (1, {"task": note, "args": [1], "kwargs": {"two": 3}}),
        (1, {"task": note, "args": (1,)}),
        (0, {"task": note, "args": [2]}),
        (0, {"task": note, "kwargs": {}}),
        (1, {"task": echo}),
    ):
        assert_enqueued(**arguments, count=count)
    assert_enqueued("default", count=2)
    assert_enqueued("mails", task=echo, count=1)
    assert_enqueued("mails", task=note, count=0)


def test_call_without_queue_and_task_is_refused(db, assert_enqueued):
    with pytest.raises(TypeError, match="needs a queue or a task"):
        assert_enqueued(data=1)


@pytest.mark.parametrize("count", [None, 0])
def test_unknown_queue_is_an_error(queue, assert_enqueued, count):
    with pytest.raises(QueueNotFound, match="jobs"):
        assert_enqueued("jobz", count=count)


@pytest.mark.parametrize("name", ["", 5])
def test_invalid_queue_name_is_refused(queue, assert_enqueued, name):
    with pytest.raises((TypeError, ValueError), match="name must"):
        assert_enqueued(name, count=0)
