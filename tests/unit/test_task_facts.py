"""A message read as a task, without a database."""

from datetime import UTC, datetime

import pytest

from django_mqlite.message import TASK
from django_mqlite.models import Message
from django_mqlite.task_facts import NotATask, Status, is_task, task_facts
from django_mqlite.timing import moment


def message(**columns):
    said = {
        "id": 7,
        "queue": "default",
        "state": "active",
        "content_type": TASK,
        "subject": "shop.tasks.welcome",
        "message_id": "an-id",
        "body": b'{"args": [1], "kwargs": {"two": 3}}',
        "properties": {"backend": "default"},
        "enqueued_at": moment(1_000),
    }
    return Message(**{**said, **columns})


def error(delivery, **facts):
    return {
        "class": "builtins.ValueError",
        "message": "no",
        "traceback": "Traceback …",
        "delivery": delivery,
        "worker": f"w{delivery}",
        "started_at": delivery * 1_000,
        "failed_at": delivery * 1_000 + 500,
        **facts,
    }


def test_the_call_is_read():
    facts = task_facts(message(priority=5))

    assert (facts.id, facts.path) == ("an-id", "shop.tasks.welcome")
    assert (facts.args, facts.kwargs) == ([1], {"two": 3})
    assert (facts.queue, facts.backend, facts.priority) == ("default", "default", 5)
    assert (facts.run_after, facts.options) == (None, {})
    assert facts.enqueued_at == moment(1_000)
    assert (facts.attempts, facts.errors) == (0, [])


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("active", Status.READY),
        ("scheduled", Status.READY),
        ("deferred", Status.READY),
        ("locked", Status.RUNNING),
        ("completed", Status.SUCCESSFUL),
        ("dead_lettered", Status.FAILED),
    ],
)
def test_the_status_is_that_of_the_state(state, status):
    assert task_facts(message(state=state)).status is status


def test_what_was_asked_for_and_has_no_column_is_read():
    said = {"backend": "b", "run_after": "2026-01-02T00:00:00+00:00", "options": '{"ttl": 60.0}'}

    facts = task_facts(message(properties=said))

    assert (facts.backend, facts.run_after) == ("b", datetime(2026, 1, 2, tzinfo=UTC))
    assert facts.options == {"ttl": 60.0}


def test_attempts_are_the_errors_and_the_one_that_runs_or_has_ended_well():
    running = message(
        state="locked",
        delivery_count=3,
        errors=[error(1), error(2)],
        locked_by="w3",
        locked_at=moment(3_000),
    )

    facts = task_facts(running)

    assert facts.worker_ids == ["w1", "w2", "w3"]
    assert facts.attempts == 3
    assert (facts.started_at, facts.last_attempted_at) == (moment(1_000), moment(3_000))
    assert [failure.failed_at for failure in facts.errors] == [moment(1_500), moment(2_500)]
    assert facts.errors[0].exception_class_path == "builtins.ValueError"


def test_a_resting_task_was_last_attempted_when_it_last_failed():
    facts = task_facts(message(state="scheduled", delivery_count=2, errors=[error(1), error(2)]))

    assert facts.worker_ids == ["w1", "w2"]
    assert facts.last_attempted_at == moment(2_000)


def test_attempts_whose_error_is_forgotten_or_was_never_told_are_counted():
    facts = task_facts(message(delivery_count=4, errors=[error(3), error(4)]))

    assert facts.worker_ids == ["?", "?", "w3", "w4"]


def test_after_a_redrive_the_earlier_attempts_still_count():
    again = message(state="locked", delivery_count=1, errors=[error(1), error(2)], locked_by="w")

    assert task_facts(again).worker_ids == ["w1", "w2", "w"]


def test_a_dead_letter_that_no_attempt_made_one_says_why():
    dead = message(
        state="dead_lettered",
        delivery_count=1,
        errors=[error(1)],
        finished_at=moment(9_000),
        dead_letter_reason="TTLExpired",
        dead_letter_description="its time was over",
    )

    facts = task_facts(dead)

    assert [failure.message for failure in facts.errors] == ["no", "TTLExpired: its time was over"]
    assert facts.errors[1].failed_at == moment(9_000)
    assert facts.attempts == 1


def test_a_dead_letter_of_its_last_attempt_says_it_once():
    dead = message(
        state="dead_lettered", delivery_count=1, errors=[error(1)], finished_at=moment(1_500)
    )

    assert len(task_facts(dead).errors) == 1


def test_an_error_without_a_class_or_traceback_still_has_both():
    facts = task_facts(message(errors=[{"class": "", "message": "the worker was stopped"}]))

    (failure,) = facts.errors
    assert failure.exception_class_path == "django_mqlite.exceptions.DeliveryFailed"
    assert failure.traceback == "the worker was stopped"
    assert (failure.worker, failure.started_at) == (None, None)


def test_a_result_is_the_return_value():
    assert task_facts(message(state="completed", result={"a": 1})).return_value == {"a": 1}


@pytest.mark.parametrize(
    "columns",
    [
        {"content_type": "application/json"},
        {"content_type": None},
        {"body": b"{"},
        {"body": b"\xff\xfe"},
        {"body": b"[]"},
        {"body": b'{"args": {}, "kwargs": {}}'},
        {"body": b'{"args": []}'},
        {"properties": {"run_after": "soon"}},
        {"properties": {"options": "{"}},
        {"properties": {"options": "[]"}},
    ],
    ids=str,
)
def test_what_is_no_task_is_not_read_as_one(columns):
    with pytest.raises(NotATask):
        task_facts(message(**columns))


def test_a_task_is_known_by_its_content_type():
    assert is_task(message())
    assert not is_task(message(content_type="application/json"))


@pytest.mark.parametrize("properties", [None, {}, {"colour": "red"}], ids=str)
def test_properties_are_not_needed(properties):
    facts = task_facts(message(properties=properties))

    assert (facts.backend, facts.run_after, facts.options) == ("default", None, {})
