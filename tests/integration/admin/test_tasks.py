"""Tasks in the admin: call, status, attempts, and redriving a failed one."""

import pytest

from django_mqlite.message import TASK
from django_mqlite.models import DeadLetter, Message
from django_mqlite.testing import drain
from tests.integration.tasks import calls

from .pages import DEAD_LETTERS, MESSAGES, listed, page_of, text_of


@pytest.fixture
def tasks(make_queue, clock):
    """The default queue of tasks."""
    return make_queue("default", max_delivery_count=1, retain_completed=60)


def page(client):
    """Return the page of the only message."""
    return text_of(client.get(page_of(Message.objects.get())))


def test_task_is_shown_with_call_status_and_attempts(viewer, tasks):
    calls.one_or_two.enqueue({"order": "<17>"}, second="two")

    text = page(viewer)

    assert "tests.integration.tasks.calls.one_or_two(\n    {\n" in text
    assert "&quot;order&quot;: &quot;&lt;17&gt;&quot;" in text
    assert "second = &quot;two&quot;,\n)</pre>" in text
    assert ">READY<" in text
    assert "<17>" not in text


def test_finished_task_shows_status_worker_and_result(viewer, tasks):
    calls.meaning_of_life.enqueue()
    drain("default")

    text = page(viewer)

    assert "tests.integration.tasks.calls.meaning_of_life()</pre>" in text
    assert ">SUCCESSFUL<" in text
    assert f">1: {Message.objects.get().locked_by}<" in text
    assert ">42</pre>" in text


def test_failed_task_is_redriven_like_a_dead_letter(make_staff, tasks):
    operator = make_staff("view_deadletter", "view_message", "view_body", "redrive_message")
    calls.fail.enqueue("because")
    drain("default")
    letter = DeadLetter.objects.get()

    text = text_of(operator.get(page_of(letter)))
    assert ">FAILED<" in text
    assert "because" in text
    operator.post(f"{DEAD_LETTERS}{letter.pk}/redrive/")

    assert ">READY<" in page(operator)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"args": 1}', b"\xff", b"[" * 100_000], ids=range(5)
)
def test_unreadable_task_is_shown_as_a_message(viewer, queue, body):
    Message.objects.enqueue("jobs", body, content_type=TASK, subject="shop.tasks.mail")

    text = page(viewer)

    assert "field-task_call" not in text
    assert "shop.tasks.mail" in text


def test_plain_message_has_no_task_fields(viewer, queue):
    Message.objects.enqueue("jobs", 1)

    assert "field-task_" not in page(viewer)


def test_list_filters_and_finds_tasks(viewer, tasks):
    calls.meaning_of_life.enqueue()
    drain("default")
    calls.bare.enqueue()
    done, waiting = Message.objects.order_by("pk").values_list("pk", flat=True)

    response = viewer.get(MESSAGES, {"state": "completed"})
    assert listed(response) == [done]
    assert "completed (SUCCESSFUL)" in text_of(response)
    assert listed(viewer.get(MESSAGES, {"q": "tests.integration.tasks.calls.bare"})) == [waiting]
