"""Log records of a handler say which message it was handling; bodies are in none."""

import asyncio
import logging
import threading

import pytest

from django_mqlite.handlers import Handler
from django_mqlite.logs import CurrentMessage, MessageFilter, current_message
from django_mqlite.models import Message
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import ProcessResult, run_worker_process
from django_mqlite.worker.shutdown import Shutdown
from tests.support.unruly_app import UNRULY
from tests.support.waiting import wait_until

SILENT = "tests.support.silent_settings"
SECRET = "only for the handler's eyes"
shop = logging.getLogger("shop")


@pytest.fixture
def records(caplog):
    """Tells what was logged, each record through the filter, in the thread that logged it."""
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(found := MessageFilter())
    yield lambda: caplog.records
    caplog.handler.removeFilter(found)


def work_until_idle(handle) -> None:
    options = WorkerOptions(using="default", queues=("jobs",), burst=True)
    assert (
        run_worker_process(options, {"jobs": Handler(queue="jobs", function=handle)}, Shutdown())
        == ProcessResult()
    )


def of_the_shop(records) -> set[tuple]:
    return {(r.getMessage(), r.queue, r.id) for r in records() if r.name == "shop"}


@pytest.mark.django_db(transaction=True)
def test_records_of_a_handler_in_a_thread_carry_its_message(queue, records):
    messages = [Message.objects.enqueue("jobs", number) for number in range(5)]

    work_until_idle(lambda message: shop.info("handles %s", message.data))

    expected = {(f"handles {n}", "jobs", message.pk) for n, message in enumerate(messages)}
    assert of_the_shop(records) == expected


@pytest.mark.django_db(transaction=True)
def test_records_of_tasks_that_run_at_once_carry_each_its_own(queue, records):
    messages = [Message.objects.enqueue("jobs", number) for number in range(4)]
    running, together = [], asyncio.Event()

    async def handle(message):
        running.append(message)
        if len(running) == len(messages):
            together.set()
        async with asyncio.timeout(30):
            await together.wait()
        shop.info("handles %s", message.data)

    work_until_idle(handle)

    expected = {(f"handles {n}", "jobs", message.pk) for n, message in enumerate(messages)}
    assert of_the_shop(records) == expected


def test_outside_a_handler_there_is_no_message(records):
    shop.info("nothing to do")

    assert of_the_shop(records) == {("nothing to do", None, None)}
    assert current_message.get() is None


def test_what_a_record_says_itself_is_left_alone(records):
    shop.info("settled", extra={"queue": "others", "id": 7})

    assert of_the_shop(records) == {("settled", "others", 7)}


def test_another_thread_knows_nothing_of_the_message():
    current_message.set(CurrentMessage("jobs", 1))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(current_message.get()))
    thread.start()
    thread.join()
    current_message.set(None)

    assert seen == [None]


@pytest.mark.django_db(transaction=True)
def test_bodies_are_in_no_record_however_the_delivery_ends(make_queue, records):
    make_queue("jobs", max_delivery_count=2, backoff_base=0)
    for _ in range(3):
        Message.objects.enqueue("jobs", {"secret": SECRET})

    def fail(message):
        raise RuntimeError("no")

    work_until_idle(fail)

    levels = [record.levelname for record in records() if record.name.startswith("django_mqlite")]
    assert {"INFO", "WARNING", "ERROR"} <= set(levels)
    assert not [record for record in records() if SECRET in record.getMessage()]
    assert not [record for record in records() if SECRET in str(record.exc_text)]


def test_the_documented_settings_print_queue_and_id(database):
    messages = {}
    for queue in ("says", "says-async"):
        database.queue(queue)
        messages[queue] = database.enqueue(queue, {"secret": SECRET})

    worker = database.start("--queues=says,says-async", "--burst", **UNRULY)

    assert worker.ended_well()
    for queue, message in messages.items():
        assert f"shop {queue}#{message.pk} handled" in worker.output
    assert SECRET not in worker.output


@pytest.mark.parametrize("processes", [1, 2])
def test_worker_logs_in_a_project_without_logging_settings(database, processes):
    worker = database.start(f"--processes={processes}", DJANGO_SETTINGS_MODULE=SILENT)

    wait_until(lambda: worker.output.count(" INFO worker ") == processes, "each to say it serves")
    assert worker.output.count(" serves ") == processes


def test_a_reaper_is_heard_as_well(database):
    database.run("runreaper", DJANGO_SETTINGS_MODULE=SILENT).wait_said("reaper has started")


@pytest.mark.django_db(transaction=True)
def test_failure_is_logged_with_its_details_and_no_body(queue, caplog):
    Message.objects.enqueue("jobs", SECRET, subject="a letter", max_delivery_count=2)

    for _ in range(2):
        (message,) = Message.objects.claim("jobs", worker="host:1:ab")
        message.abandon(delay=0, error="no")

    failed, dead = [record for record in caplog.records if record.name == "django_mqlite"]
    assert (failed.levelname, dead.levelname) == ("WARNING", "ERROR")
    for delivery, record in enumerate((failed, dead), 1):
        assert (record.queue, record.id) == ("jobs", message.pk)
        assert (record.subject, record.worker) == ("a letter", "host:1:ab")
        assert record.delivery == delivery
        assert SECRET not in repr(vars(record))
