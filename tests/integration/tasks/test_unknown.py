"""A rolling deployment: tasks that this code does not have, and messages that are not tasks."""

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
BACKEND = task_backends["default"]


def join_signal_threads():
    """Wait for the threads that send task_finished if the task's module is not yet imported."""
    for thread in threading.enumerate():
        if thread.name == "mqlite-task-finished":
            thread.join(30)


def enqueue(path, *, body=None, **options):
    """Enqueue a call like a program with other code."""
    options = {"message_id": "7", "properties": {"backend": "default"}, **options}
    data = {"args": [], "kwargs": {}} if body is None else body
    return Message.objects.enqueue("default", data, content_type=TASK, subject=path, **options)


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
def test_unknown_task_is_not_run_but_retried_and_dead_lettered(tasks_queue, run_all, path):
    message = enqueue(path, max_delivery_count=3)

    assert run_all() == 3

    dead = DeadLetter.objects.get(pk=message.pk)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert [error["class"] for error in dead.errors] == [
        "django_mqlite.task_backend.compat.UnknownTask"
    ] * 3
    assert f"There is no task {path!r} in this code" in dead.errors[0]["message"]
    assert calls.seen == []


def test_unknown_task_runs_after_a_deployment_adds_the_task(
    tasks_queue, run_once, run_all, monkeypatch
):
    enqueue(f"{HERE}.calls.new_name")
    run_once()
    monkeypatch.setattr(calls, "new_name", calls.meaning_of_life, raising=False)
    run_all()

    assert Message.objects.get().result == 42


@pytest.mark.parametrize("path", ["no.such.task", f"{HERE}.calls.no_such_task"])
def test_failed_result_of_unknown_task_can_be_read(tasks_queue, run_all, path):
    enqueue(path, max_delivery_count=2)
    run_all()

    result = BACKEND.get_result("7")
    result.refresh()

    assert (result.status, result.task.module_path) == ("FAILED", path)
    assert [error.exception_class for error in result.errors] == [UnknownTask] * 2
    assert f"There is no task {path!r}" in result.errors[0].traceback
    with pytest.raises(UnknownTask, match="There is no task"):
        result.task.func()


def test_waiting_result_of_unknown_task_can_be_read(tasks_queue):
    enqueue("no.such.task", priority=3, properties={"options": '{"max_attempts": 2}'})

    result = BACKEND.get_result("7")

    assert (result.status, result.errors) == ("READY", [])
    assert (result.task.name, result.task.priority, result.task.max_attempts) == ("task", 3, 2)
    with pytest.raises(TaskResultMismatch):
        calls.note.get_result("7")


@pytest.mark.parametrize(
    "entry", [{"QUEUES": ["mails"]}, {"BACKEND": DUMMY}, None], ids=["queue", "backend", "entry"]
)
def test_result_of_task_that_settings_no_longer_allow_can_be_read(
    tasks_queue, settings, set_tasks, entry
):
    enqueue(f"{HERE}.calls.note", properties={"backend": "other"})
    set_tasks({"other": {**settings.TASKS["default"], **entry}} if entry else {})

    result = calls.note.get_result("7")

    assert (result.status, result.task.func) == ("READY", calls.note.func)


@pytest.mark.parametrize(
    ("backend", "entries", "message"),
    [
        ("elsewhere", {}, "its backend 'elsewhere' is not in TASKS"),
        ("other", {}, "its backend 'other' is no longer MqliteBackend"),
        ("default", {"OPTIONS": {"RESULT_TTL": "a week"}}, "RESULT_TTL"),
        ("default", {"QUEUES": ["mails"]}, "Queue 'default' is not valid for backend"),
    ],
    ids=["missing backend", "other backend", "invalid option", "missing queue"],
)
def test_task_that_settings_no_longer_allow_fails_without_running(
    tasks_queue, run_all, set_tasks, backend, entries, message
):
    enqueue(f"{HERE}.calls.note", properties={"backend": backend}, max_delivery_count=1)
    set_tasks({"other": {"BACKEND": DUMMY}}, **entries)
    run_all()

    (error,) = DeadLetter.objects.get().errors
    assert message in error["message"]
    assert calls.seen == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"args": 1, "kwargs": {}}', b'{"args": []}', b"null"]
)
def test_body_that_is_not_a_call_is_retried_and_dead_lettered(tasks_queue, run_all, body):
    enqueue(f"{HERE}.calls.note", body=body, max_delivery_count=2)

    assert run_all() == 2

    (error, _) = DeadLetter.objects.get().errors
    assert error["class"] == "django_mqlite.task_facts.NotATask"


def test_end_of_unknown_task_is_logged_and_sends_no_signal(tasks_queue, run_all, caplog, sent):
    enqueue("no.such.task", max_delivery_count=1)
    run_all()
    join_signal_threads()

    assert "task_finished is not sent" in caplog.text
    assert sent == []


def test_dead_letter_does_not_wait_for_the_import_of_its_task(
    tasks_queue, commit, monkeypatch, tmp_path
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

    with commit():
        claim_one("default").reject("Broken")

    wait_until(began.exists, "another thread to import it")
    go_on.touch()
    join_signal_threads()
