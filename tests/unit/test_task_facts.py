"""The facts of a task, read from a message without a database."""

from datetime import UTC, datetime

import pytest

from django_mqlite.message import TASK
from django_mqlite.models import Message
from django_mqlite.task_facts import NotATask, Status, task_facts
from django_mqlite.timing import moment


def message(**columns):
    defaults = {
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
    return Message(**{**defaults, **columns})


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
def test_task_status_follows_the_message_state(state, status):
    assert task_facts(message(state=state)).status is status


def test_options_without_a_column_are_read_from_the_properties():
    properties = {
        "backend": "b",
        "run_after": "2026-01-02T00:00:00+00:00",
        "options": '{"ttl": 60.0}',
    }

    facts = task_facts(message(properties=properties))

    assert (facts.backend, facts.run_after) == ("b", datetime(2026, 1, 2, tzinfo=UTC))
    assert facts.options == {"ttl": 60.0}


ERRORS = [error(1), error(2)]


@pytest.mark.parametrize(
    ("columns", "worker_ids", "last_attempted_at"),
    [
        (
            {"state": "locked", "delivery_count": 3, "errors": ERRORS, "locked_by": "w3",
             "locked_at": moment(3_000)},
            ["w1", "w2", "w3"],
            3_000,
        ),
        ({"state": "scheduled", "delivery_count": 2, "errors": ERRORS}, ["w1", "w2"], 2_000),
        ({"delivery_count": 4, "errors": [error(3), error(4)]}, ["?", "?", "w3", "w4"], 4_000),
        (
            {"state": "locked", "delivery_count": 1, "errors": ERRORS, "locked_by": "w"},
            ["w1", "w2", "w"],
            2_000,
        ),
    ],
    ids=["running", "waits for a retry", "errors no longer kept", "redriven"],
)  # fmt: skip
def test_attempts_are_the_errors_and_the_current_delivery(columns, worker_ids, last_attempted_at):
    facts = task_facts(message(**columns))

    assert (facts.worker_ids, facts.attempts) == (worker_ids, len(worker_ids))
    assert facts.started_at == moment(columns["errors"][0]["started_at"])
    assert facts.last_attempted_at == moment(last_attempted_at)
    assert facts.errors[0].failed_at == moment(columns["errors"][0]["failed_at"])
    assert facts.errors[0].exception_class_path == "builtins.ValueError"


@pytest.mark.parametrize(
    ("finished_at", "texts"),
    [(9_000, ["no", "TTLExpired: too late"]), (1_500, ["no"])],
    ids=["of its time to live", "of its last attempt"],
)
def test_dead_letter_has_its_reason_unless_an_attempt_explains_it(finished_at, texts):
    dead = message(
        state="dead_lettered",
        delivery_count=1,
        errors=[error(1)],
        finished_at=moment(finished_at),
        dead_letter_reason="TTLExpired",
        dead_letter_description="too late",
    )

    facts = task_facts(dead)

    assert [failure.message for failure in facts.errors] == texts
    assert facts.errors[-1].failed_at == moment(finished_at)
    assert facts.attempts == 1


def test_error_without_class_and_traceback_gets_both():
    facts = task_facts(message(errors=[{"class": "", "message": "the worker was stopped"}]))

    (failure,) = facts.errors
    assert failure.exception_class_path == "django_mqlite.exceptions.DeliveryFailed"
    assert failure.traceback == "the worker was stopped"
    assert (failure.worker, failure.started_at) == (None, None)


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
def test_other_message_is_not_a_task(columns):
    with pytest.raises(NotATask):
        task_facts(message(**columns))


@pytest.mark.parametrize("properties", [None, {}, {"colour": "red"}], ids=str)
def test_task_without_properties_has_defaults(properties):
    facts = task_facts(message(properties=properties))

    assert (facts.backend, facts.run_after, facts.options) == ("default", None, {})
