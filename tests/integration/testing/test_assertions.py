"""assert_enqueued(): what waits in a queue."""

import pytest

from django_mqlite import QueueNotFound, enqueue
from tests.integration.tasks.calls import echo, note
from tests.support.verbs import claim_one, dead_letter

pytestmark = pytest.mark.django_db


def test_the_messages_that_wait_are_found_the_oldest_first(queue, assert_enqueued):
    first, later = enqueue("jobs", {"to": 7}), enqueue("jobs", {"to": 7}, delay=60)
    enqueue("jobs", {"to": 8})

    found = assert_enqueued("jobs", data={"to": 7}, count=2)

    assert [message.pk for message in found] == [first.pk, later.pk]
    assert len(assert_enqueued("jobs")) == 3


@pytest.mark.parametrize("count", [None, 1, 3])
def test_a_wrong_number_fails_and_says_what_waits(queue, assert_enqueued, count):
    enqueue("jobs", {"to": 8})

    with pytest.raises(
        AssertionError,
        match=r"has 0 matching messages, .*\. Waiting messages:\n#\d+ active.*'to': 8",
    ):
        assert_enqueued("jobs", data={"to": 7}, count=count)


def test_none_can_be_what_is_wanted(queue, assert_enqueued):
    assert assert_enqueued("jobs", count=0) == []
    enqueue("jobs", None)

    with pytest.raises(AssertionError, match="has 1 matching messages, expected 0"):
        assert_enqueued("jobs", count=0)


def test_an_empty_queue_is_said_to_be_empty(queue, assert_enqueued):
    with pytest.raises(AssertionError, match="No messages are waiting"):
        assert_enqueued("jobs")


def test_what_is_being_handled_or_has_ended_does_not_wait(queue, assert_enqueued):
    enqueue("jobs", None)
    claim_one("jobs")
    dead_letter("jobs")

    assert_enqueued("jobs", count=0)


def test_a_task_is_found_by_itself_and_its_arguments(make_queue, assert_enqueued):
    make_queue("default")
    note.enqueue(1, two=3)
    echo.enqueue("x")

    assert_enqueued(task=note, count=1)
    assert_enqueued(task=note, args=[1], kwargs={"two": 3}, count=1)
    assert_enqueued(task=note, args=(1,), count=1)
    assert_enqueued(task=note, args=[2], count=0)
    assert_enqueued(task=note, kwargs={}, count=0)
    assert_enqueued("default", count=2)


def test_a_task_in_another_queue_is_looked_for_there(make_queue, assert_enqueued):
    make_queue("default")
    make_queue("mails")
    note.using(queue_name="mails").enqueue()

    assert_enqueued("mails", task=note, count=1)
    assert_enqueued(task=note, count=0)


def test_neither_queue_nor_task_is_refused(db, assert_enqueued):
    with pytest.raises(TypeError, match="needs a queue or a task"):
        assert_enqueued(data=1)


@pytest.mark.parametrize("count", [None, 0])
def test_a_queue_that_is_not_there_is_an_error_and_no_proof(queue, assert_enqueued, count):
    with pytest.raises(QueueNotFound, match="jobs"):
        assert_enqueued("jobz", count=count)
