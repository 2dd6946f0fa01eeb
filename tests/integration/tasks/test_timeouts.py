"""The timeout of a task: where it is set, where it is stored, and which one applies."""

from datetime import timedelta

import pytest

from django_mqlite import enqueue
from django_mqlite.message import timeout_ms_of
from django_mqlite.models import Message
from django_mqlite.task_backend import task_options
from django_mqlite.task_backend.compat import InvalidTask
from tests.support.verbs import overwrite

from . import calls

pytestmark = pytest.mark.django_db


@pytest.mark.rule("14.1")
@pytest.mark.parametrize(
    ("enqueue_call", "timeout_ms"),
    [
        (calls.note.enqueue, None),
        (calls.limited.enqueue, 90_000),
        (lambda: calls.limited.using(timeout=5).enqueue(), 5_000),
        (lambda: calls.note.using(timeout=timedelta(minutes=2)).enqueue(), 120_000),
        (lambda: calls.note.using(timeout=0.5).enqueue(), 500),
    ],
    ids=["none", "task_options", "using replaces it", "timedelta", "fraction"],
)
def test_timeout_of_a_task_is_stored_with_its_message(tasks_queue, enqueue_call, timeout_ms):
    result = enqueue_call()

    assert timeout_ms_of(Message.objects.get()) == timeout_ms
    assert calls.note.get_backend().get_result(result.id).task == result.task


@pytest.mark.rule("14.1")
def test_timeout_property_of_a_plain_message_is_not_used(clock, queue):
    message = enqueue("jobs", None, properties={"timeout_ms": "1"})

    assert timeout_ms_of(Message.objects.get(pk=message.pk)) is None


@pytest.mark.parametrize(
    "properties",
    [None, 7, [], {"timeout_ms": 7}, *({"timeout_ms": text} for text in ("", "0", "-1", "x", "²",
                                                                       "9" * 5_000))],
    ids=lambda properties: str(properties)[:20],
)  # fmt: skip
def test_damaged_timeout_is_none(tasks_queue, properties):
    calls.limited.enqueue()
    overwrite(Message.objects.all(), properties=properties)

    assert timeout_ms_of(Message.objects.get()) is None


@pytest.mark.parametrize("timeout", [0, -1, "soon", True, float("nan")], ids=str)
def test_invalid_timeout_is_refused_by_name(timeout):
    with pytest.raises(InvalidTask, match="timeout"):
        task_options(timeout=timeout)
    with pytest.raises(InvalidTask, match="timeout"):
        calls.note.using(timeout=timeout)


def test_timeout_is_given_up_on_without_a_retry(tasks_queue, run_once, clock, monkeypatch):
    original = calls.act
    monkeypatch.setattr(calls, "act", lambda name: clock.advance(61) or original(name))
    calls.picky.using(timeout=60).enqueue("a")

    run_once()

    message = Message.objects.get()
    assert (message.dead_letter_reason, message.delivery_count) == ("NotRetried", 1)
    assert message.dead_letter_description.startswith("TimeoutError: the handler ran longer")
