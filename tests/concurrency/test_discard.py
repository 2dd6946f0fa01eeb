"""Messages are discarded by another process while real workers handle them."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_mqlite.models import Message
from tests.support.waiting import wait_until
from tests.support.worker_app.tasks import wait_until_cancelled
from tests.support.workers import ALIAS, WorkerRouter

pytestmark = pytest.mark.rule("15.3")


@pytest.fixture
def messages(database):
    return Message.objects.db_manager(ALIAS)


@pytest.fixture
def files(database):
    """Where the handler says that it has started, and that it has ended early."""
    return {"started": database.file("started"), "ended": database.file("ended")}


def wait_started(database):
    wait_until(database.beside.joinpath("started.1").exists, "the handler to start")


def wait_ended(database):
    wait_until(database.beside.joinpath("ended").exists, "the handler to notice the discard")


@pytest.mark.parametrize("arguments", [(), ("--processes=2",)], ids=["one process", "processes"])
@pytest.mark.parametrize("queue", ["jobs", "async"], ids=["thread", "coroutine"])
def test_handler_notices_that_its_message_was_discarded(
    database, messages, files, queue, arguments
):
    message = database.enqueue(queue, files)
    worker = database.start("--threads=1", *arguments)
    wait_started(database)

    assert messages.discard(message.pk)

    wait_ended(database)
    done = database.enqueue(queue)
    wait_until(lambda: database.state(done) == "gone", "the next message to be handled")
    assert database.row(message)["dead_letter_reason"] == "Discarded"
    worker.terminate()
    assert worker.ended_well()
    assert "was discarded" in worker.output


def test_async_task_is_cancelled_by_a_discard(database, messages, files, settings):
    settings.DATABASE_ROUTERS = [f"{WorkerRouter.__module__}.{WorkerRouter.__name__}"]
    result = wait_until_cancelled.enqueue(**files)
    message = messages.get(message_id=result.id)
    worker = database.start("--threads=1")
    wait_started(database)

    assert messages.discard(message.pk)

    wait_ended(database)
    result.refresh()
    assert result.status == "FAILED"
    assert [error.exception_class_path for error in result.errors] == [
        "django_mqlite.exceptions.Discarded"
    ]
    worker.terminate()
    assert worker.ended_well()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="NOT TESTED: processes are POSIX")
def test_process_of_a_handler_that_ignores_the_discard_is_replaced(database, messages):
    steps = {"started": database.file("started"), "wait_for": database.file("never")}
    message = database.enqueue("jobs", steps)
    worker = database.start("--processes=2", "--threads=1")
    wait_started(database)

    assert messages.discard(message.pk)

    worker.wait_said("this process is ending and will be replaced")
    wait_until(lambda: worker.output.count(" serves ") == 3, "the replacement to serve")
    done = database.enqueue("jobs")
    wait_until(lambda: database.state(done) == "gone", "the next message to be handled")
    assert database.row(message)["delivery_count"] == 1
    worker.terminate()
    assert worker.ended_well()


def test_discard_waits_for_an_atomic_handler_to_complete(database, messages):
    steps = {"started": database.file("started"), "wait_for": database.file("go-on")}
    message = database.enqueue("atomic", steps)
    worker = database.start("--threads=1")
    wait_started(database)

    with ThreadPoolExecutor(1) as pool:
        discarded = pool.submit(messages.discard, message.pk)
        database.beside.joinpath("go-on").touch()
        assert discarded.result() is False

    assert database.state(message) == "gone"
    worker.terminate()
    assert worker.ended_well()


def test_discarded_head_rings_for_the_next_message_of_its_line(database, messages, files):
    head = database.enqueue("groups", files, group_id="g")
    behind = database.enqueue("groups", group_id="g")
    worker = database.start("--threads=2")
    wait_started(database)
    assert database.state(behind) == "active"

    messages.discard(head.pk)

    wait_until(lambda: database.state(behind) == "gone", "the next of the line to be handled")
    worker.terminate()
    assert worker.ended_well()
