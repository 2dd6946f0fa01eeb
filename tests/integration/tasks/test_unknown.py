"""A rolling deployment: paths that this code does not have, and code that is no task."""

import threading

import pytest

from django_mqlite.message import TASK
from django_mqlite.models import DeadLetter, Message
from django_mqlite.task_backend import UnknownTask
from django_mqlite.task_backend.compat import TaskResultMismatch, signals, task_backends
from tests.support.verbs import claim_one
from tests.support.waiting import wait_until

from . import calls

pytestmark = pytest.mark.django_db

HERE = "tests.integration.tasks"
DUMMY = signals.__name__.replace(".signals", ".backends.dummy.DummyBackend")


def wait_told() -> None:
    """What has to import a task's module is told from a thread of its own."""
    for thread in threading.enumerate():
        if thread.name == "mqlite-task-finished":
            thread.join(30)


def enqueue(path, **options):
    """As a program with other code does."""
    said = {"message_id": "7", "properties": {"backend": "default"}, **options}
    return Message.objects.enqueue(
        "default", {"args": [], "kwargs": {}}, content_type=TASK, subject=path, **said
    )


@pytest.mark.parametrize(
    "path",
    [
        "no.such.module",
        f"{HERE}.calls.no_such_task",
        f"{HERE}.calls.not_a_task",
        f"{HERE}.broken.anything",
        f"{HERE}.leaving.anything",
        f"{HERE}.ending.anything",
        "os.abort",
        "builtins.exec",
        "nodots",
        f"{HERE}.calls.note.func",
        f"{HERE}.calls.meaning_of_life.enqueue",
        "..",
        "é\n",
    ],
)
def test_what_is_no_task_is_not_run_fails_by_the_retry_policy_and_ends_as_a_dead_letter(
    tasks_queue, run_all, path
):
    message = enqueue(path, max_delivery_count=3)

    assert run_all() == 3

    dead = DeadLetter.objects.get(pk=message.pk)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert [error["class"] for error in dead.errors] == [
        "django_mqlite.task_backend.compat.UnknownTask"
    ] * 3
    assert f"There is no task {path!r} in this code" in dead.errors[0]["message"]
    assert calls.seen == []


def test_once_the_code_is_there_the_task_runs(tasks_queue, run_once, run_all, monkeypatch):
    enqueue(f"{HERE}.calls.new_name")
    run_once()
    monkeypatch.setattr(calls, "new_name", calls.meaning_of_life, raising=False)
    run_all()

    assert Message.objects.get().result == 42


def backend():
    return task_backends["default"]


@pytest.mark.parametrize("path", ["no.such.task", f"{HERE}.calls.no_such_task"])
def test_failed_result_of_unknown_task_can_be_read(tasks_queue, run_all, path):
    enqueue(path, max_delivery_count=2)
    run_all()

    result = backend().get_result("7")
    result.refresh()

    assert (result.status, result.task.module_path) == ("FAILED", path)
    assert [error.exception_class for error in result.errors] == [UnknownTask] * 2
    assert f"There is no task {path!r}" in result.errors[0].traceback
    with pytest.raises(UnknownTask, match="There is no task"):
        result.task.func()


def test_waiting_result_of_unknown_task_can_be_read(tasks_queue):
    enqueue("no.such.task", priority=3, properties={"options": '{"max_attempts": 2}'})

    result = backend().get_result("7")

    assert (result.status, result.errors) == ("READY", [])
    assert (result.task.name, result.task.priority, result.task.max_attempts) == ("task", 3, 2)
    with pytest.raises(TaskResultMismatch):
        calls.note.get_result("7")


@pytest.mark.parametrize(
    "entry", [{"QUEUES": ["mails"]}, {"BACKEND": DUMMY}, None], ids=["queue", "backend", "entry"]
)
def test_result_of_task_that_settings_refuse_now_can_be_read(tasks_queue, settings, entry):
    ours = settings.TASKS["default"]
    enqueue(f"{HERE}.calls.note", properties={"backend": "other"})
    settings.TASKS = {"default": ours, **({"other": {**ours, **entry}} if entry else {})}

    result = calls.note.get_result("7")

    assert (result.status, result.task.func) == ("READY", calls.note.func)


def test_a_backend_that_is_not_in_the_settings_is_said_to_be_so(tasks_queue, run_all):
    enqueue(f"{HERE}.calls.note", properties={"backend": "elsewhere"}, max_delivery_count=1)
    run_all()

    (error,) = DeadLetter.objects.get().errors
    assert "its backend 'elsewhere' is not in TASKS" in error["message"]


def test_a_backend_that_is_another_one_now_is_said_to_be_so(tasks_queue, run_all, settings):
    ours = settings.TASKS["default"]
    settings.TASKS = {"default": ours, "other": {**ours, "BACKEND": DUMMY}}
    enqueue(f"{HERE}.calls.note", properties={"backend": "other"}, max_delivery_count=1)
    run_all()

    (error,) = DeadLetter.objects.get().errors
    assert "its backend 'other' is no longer MqliteBackend" in error["message"]
    assert calls.seen == []


def test_wrong_settings_are_found_out_before_the_task_has_run(tasks_queue, run_all, settings):
    enqueue(f"{HERE}.calls.note", max_delivery_count=2)
    wrong = {"OPTIONS": {"RESULT_TTL": "a week"}}
    settings.TASKS = {"default": {**settings.TASKS["default"], **wrong}}
    run_all()

    (error, _) = DeadLetter.objects.get().errors
    assert "RESULT_TTL" in error["message"]
    assert calls.seen == []


def test_a_queue_that_the_backend_has_no_more_is_said_to_be_so(tasks_queue, run_all, settings):
    enqueue(f"{HERE}.calls.note", max_delivery_count=1)
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["mails"]}}
    run_all()

    (error,) = DeadLetter.objects.get().errors
    assert "Queue 'default' is not valid for backend" in error["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"args": 1, "kwargs": {}}', b'{"args": []}', b"null"]
)
def test_a_body_that_no_task_has_fails_by_the_retry_policy(tasks_queue, run_all, body):
    message = Message.objects.enqueue(
        "default", body, content_type=TASK, subject=f"{HERE}.calls.note", max_delivery_count=2
    )

    assert run_all() == 2

    (error, _) = DeadLetter.objects.get(pk=message.pk).errors
    assert error["class"] == "django_mqlite.task_facts.NotATask"


def test_an_unknown_task_that_ends_is_logged_and_stops_nothing(tasks_queue, run_all, caplog, heard):
    enqueue("no.such.task", max_delivery_count=1)
    run_all()
    wait_told()

    assert "task_finished is not sent" in caplog.text
    assert heard == []


def test_a_dead_letter_does_not_keep_who_tells_of_it_waiting_for_an_import(
    tasks_queue, heard, committed, monkeypatch, tmp_path
):
    began, go_on = tmp_path / "began", tmp_path / "go-on"
    (tmp_path / "slow_import.py").write_text(
        f"""
import pathlib, time
pathlib.Path({str(began)!r}).touch()
while not pathlib.Path({str(go_on)!r}).exists():
    time.sleep(0.01)
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    enqueue("slow_import.anything")

    with committed():
        claim_one("default").reject("Broken")

    wait_until(began.exists, "another thread to import it")
    go_on.touch()
    wait_told()
