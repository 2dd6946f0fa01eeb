"""Which exceptions of a task are retried and when, and tasks in one transaction."""

import pytest
from django.contrib.auth.models import Group

from django_mqlite import LockLost, Reject, Retry
from django_mqlite.models import Message
from django_mqlite.task_backend import task_options
from django_mqlite.task_backend.compat import InvalidTask, TaskResultStatus, task
from django_mqlite.testing import drain
from django_mqlite.worker.executor import Executor
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import run_worker_process
from django_mqlite.worker.shutdown import Shutdown
from tests.support.transactions import another_connection
from tests.support.verbs import overwrite

from . import calls

pytestmark = pytest.mark.django_db(transaction=True)

FLAVOURS = [calls.picky, calls.picky_async, calls.picky_atomic]
each_flavour = pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda task: task.name)


def work():
    options = WorkerOptions(using="default", queues=("default",), burst=True, threads=1)
    run_worker_process(options, {}, Shutdown())


each_runner = pytest.mark.parametrize(
    "run", [work, lambda: drain("default", retries=False)], ids=["worker", "drain"]
)


# Retries


@pytest.mark.rule("3.9")
@each_runner
@each_flavour
@pytest.mark.parametrize(
    "error", [ValueError("broken"), BrokenPipeError("closed")], ids=["not listed", "given up on"]
)
def test_exception_that_is_not_worth_a_retry_fails_the_task(tasks_queue, flavour, run, error):
    calls.failures.append(error)
    result = flavour.enqueue("a")

    run()

    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert result.errors[0].exception_class is type(error)
    message = Message.objects.get()
    assert message.dead_letter_reason == "NotRetried"
    assert message.dead_letter_description == f"{type(error).__name__}: {error}"


@pytest.mark.rule("3.9")
@each_runner
@each_flavour
def test_exception_that_is_worth_a_retry_waits_for_its_backoff(
    tasks_queue, flavour, run, clock, message_of
):
    calls.failures += [ConnectionResetError(), ConnectionAbortedError()]
    result = flavour.enqueue("a")

    for delay in (10, 20):
        run()
        message = message_of(result)
        assert (message.visible_at - clock.now).total_seconds() == delay
        clock.advance(delay)
    run()

    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3)


@pytest.mark.rule("3.9")
@each_flavour
@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (Retry(delay=5), "scheduled", None),
        (Reject("Refused"), "dead_lettered", "Refused"),
    ],
    ids=["Retry", "Reject"],
)
def test_retry_and_reject_go_before_the_options(tasks_queue, flavour, error, state, reason):
    calls.failures.append(error)
    flavour.enqueue("a")

    drain("default", retries=False)

    message = Message.objects.get()
    assert (message.state, message.dead_letter_reason) == (state, reason)


@pytest.mark.rule("3.9")
def test_backoff_of_a_call_replaces_that_of_its_function(tasks_queue, clock):
    calls.failures.append(ConnectionResetError())
    calls.picky.using(backoff=100).enqueue("a")

    drain("default", retries=False)

    delay = (Message.objects.get().visible_at - clock.now).total_seconds()
    assert 50 <= delay <= 100


def test_task_that_this_code_lacks_is_retried(tasks_queue, monkeypatch):
    calls.picky.enqueue("a")
    monkeypatch.delattr(calls, "picky")

    drain("default", retries=False)

    assert Message.objects.get().state == "scheduled"


@pytest.mark.parametrize("written", ["[", "[]", "7", '{"backoff": "soon"}', '{"backoff": []}'])
def test_call_with_damaged_options_fails_its_delivery(tasks_queue, written):
    calls.picky.enqueue("a")
    overwrite(Message.objects.all(), properties={"backend": "default", "options": written})

    drain("default", retries=False)

    message = Message.objects.get()
    assert message.state in ("scheduled", "dead_lettered")
    assert calls.seen == []


@pytest.mark.parametrize(
    "options",
    [
        {"retry_on": "ValueError"},
        {"give_up_on": (ValueError, 7)},
        {"backoff": -1},
        {"atomic": "yes"},
        {"atomic": 1},
    ],
    ids=str,
)
def test_invalid_option_of_a_function_is_refused_by_name(options):
    (name,) = options
    with pytest.raises(InvalidTask, match=name):
        task_options(**options)


def test_call_cannot_set_a_backoff_function():
    with pytest.raises(InvalidTask, match=r"Only task_options\(\) can set backoff to a function"):
        calls.note.using(backoff=calls.seconds_of)


@pytest.mark.parametrize("name", ["retry_on", "give_up_on", "atomic"])
def test_option_of_the_function_is_unknown_to_using(name):
    with pytest.raises(TypeError, match=f"no option {name!r}"):
        calls.note.using(**{name: True})


# Atomic tasks


def committed_groups():
    with another_connection() as other:
        return other.execute("SELECT count(*) FROM auth_group").fetchone()[0]


@pytest.mark.rule("3.10")
@each_runner
def test_rows_and_result_of_an_atomic_task_commit_together(tasks_queue, run, monkeypatch):
    counts = []
    result = calls.picky_atomic.enqueue("a")
    original = calls.act

    def act(name):
        value = original(name)
        counts.append(committed_groups())
        return value

    monkeypatch.setattr(calls, "act", act)
    run()

    result.refresh()
    assert (counts, committed_groups()) == ([0], 1)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, "a")


@pytest.mark.rule("3.10")
@each_runner
@pytest.mark.parametrize("error", [ConnectionResetError(), ValueError()], ids=["retried", "not"])
def test_atomic_task_that_fails_has_written_nothing(tasks_queue, run, error):
    calls.failures.append(error)
    result = calls.picky_atomic.enqueue("a")

    run()

    result.refresh()
    assert result.errors[0].exception_class is type(error)
    assert (calls.seen, Group.objects.count()) == (["a"], 0)


@pytest.mark.rule("3.10")
@each_runner
def test_atomic_task_enqueues_the_next_step_exactly_once(tasks_queue, run, clock):
    calls.failures.append(ValueError("after the next step was enqueued"))
    calls.step.enqueue("first", then="second")

    run()
    assert Message.objects.count() == 1
    clock.advance(3_600)
    run()
    run()

    assert calls.seen == ["first", "first", "second"]
    assert Group.objects.count() == 2


@pytest.mark.rule("3.10")
def test_atomic_task_whose_value_is_refused_has_written_nothing(tasks_queue):
    result = calls.atomic_value.enqueue("a")

    drain("default")

    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert Message.objects.get().dead_letter_reason == "ReturnValueRefused"
    assert Group.objects.count() == 0


@pytest.mark.rule("3.10")
def test_atomic_task_that_lost_its_lease_has_written_nothing(tasks_queue, clock, monkeypatch):
    original = calls.act
    monkeypatch.setattr(calls, "act", lambda name: clock.advance(30) or original(name))
    calls.picky_atomic.enqueue("a")
    (message,) = Message.objects.claim("default")

    finished = Executor(handlers={}, using="default").run(message)

    assert isinstance(finished.error, LockLost)
    assert not finished.settled
    assert (calls.seen, Group.objects.count()) == (["a"], 0)


@pytest.mark.rule("3.10")
def test_atomic_task_sends_task_finished_after_commit(tasks_queue, sent):
    result = calls.picky_atomic.enqueue("a")
    drain("default")

    assert sent[-1][0] == "task_finished"
    assert sent[-1][2:] == ("SUCCESSFUL", result.id)


def test_async_task_cannot_be_atomic():
    atomic = task_options(atomic=True)(calls.note_async.func)
    try:
        with pytest.raises(InvalidTask, match="is async and cannot be atomic"):
            task()(atomic)
    finally:
        del atomic._mqlite_task_options
