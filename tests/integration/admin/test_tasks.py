"""Tasks in the admin: call, status, attempts, and redriving a failed one."""

import pytest

from django_mqlite.message import TASK
from django_mqlite.models import DeadLetter, Message
from django_mqlite.testing import drain
from tests.integration.tasks import calls

from .pages import DEAD_LETTERS, MESSAGES, listed, page_of, text_of


@pytest.fixture
def tasks(make_queue, clock):
    """The queue that tasks come in."""
    return make_queue("default", max_delivery_count=1, retain_completed=60)


def only_message():
    return Message.objects.get()


def test_task_is_shown_with_call_status_and_attempts(viewer, tasks):
    calls.one_or_two.enqueue({"order": "<17>"}, second="two")

    page = text_of(viewer.get(page_of(only_message())))

    assert "tests.integration.tasks.calls.one_or_two(\n    {\n" in page
    assert "&quot;order&quot;: &quot;&lt;17&gt;&quot;" in page
    assert "second = &quot;two&quot;,\n)</pre>" in page
    assert ">READY<" in page
    assert "<17>" not in page


def test_task_call_without_arguments_is_one_line(viewer, tasks):
    calls.bare.enqueue()

    assert "tests.integration.tasks.calls.bare()</pre>" in text_of(
        viewer.get(page_of(only_message()))
    )


def test_finished_task_shows_status_worker_and_result(viewer, tasks):
    calls.meaning_of_life.enqueue()
    drain("default")

    message = only_message()
    page = text_of(viewer.get(page_of(message)))

    assert ">SUCCESSFUL<" in page
    assert f">1: {message.locked_by}<" in page
    assert ">42</pre>" in page


def test_failed_task_is_redriven_like_a_dead_letter(make_staff, tasks):
    operator = make_staff("view_deadletter", "view_message", "redrive_message")
    calls.fail.enqueue("because")
    drain("default")
    letter = DeadLetter.objects.get()

    page = text_of(operator.get(page_of(letter)))
    assert ">FAILED<" in page
    assert "because" in page
    operator.post(f"{DEAD_LETTERS}{letter.pk}/redrive/")

    assert ">READY<" in text_of(operator.get(page_of(only_message())))


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"args": 1}', b"\xff", b"[" * 100_000], ids=range(5)
)
def test_unreadable_task_is_shown_as_a_message(viewer, queue, body):
    message = Message.objects.enqueue("jobs", body, content_type=TASK, subject="shop.tasks.mail")

    page = text_of(viewer.get(page_of(message)))

    assert "field-task_call" not in page
    assert "shop.tasks.mail" in page


def test_plain_message_has_no_task_fields(viewer, queue):
    assert "field-task_" not in text_of(viewer.get(page_of(Message.objects.enqueue("jobs", 1))))


def test_list_filters_and_finds_tasks(viewer, tasks):
    calls.meaning_of_life.enqueue()
    drain("default")
    calls.bare.enqueue()
    done, waiting = Message.objects.order_by("pk").values_list("pk", flat=True)

    page = viewer.get(MESSAGES, {"state": "completed"})
    assert listed(page) == [done]
    assert "completed (SUCCESSFUL)" in text_of(page)
    assert listed(viewer.get(MESSAGES, {"q": "tests.integration.tasks.calls.bare"})) == [waiting]
