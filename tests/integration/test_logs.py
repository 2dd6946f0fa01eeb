"""Log records of a handler name its message; no record has a body."""

import asyncio
import logging
import threading

import pytest

from django_mqlite import Retry, enqueue, enqueue_many
from django_mqlite.logs import CurrentMessage, MessageFilter, current_message
from django_mqlite.models import Message
from django_mqlite.worker.process import ProcessResult
from tests.support.steps import run_handler

SECRET = "only for the handler's eyes"
shop = logging.getLogger("shop")


@pytest.fixture
def records(caplog):
    """Return the records that were logged so far, each through the filter in its own thread."""
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(message_filter := MessageFilter())
    yield lambda: caplog.records
    caplog.handler.removeFilter(message_filter)


def records_of_shop(records) -> set[tuple]:
    return {(r.getMessage(), r.queue, r.id) for r in records() if r.name == "shop"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True])
def test_record_of_a_handler_names_its_message(queue, records, is_async):
    messages = enqueue_many("jobs", range(4))
    together = threading.Barrier(4)

    def handle(message):
        together.wait(30)
        shop.info("handles %s", message.data)

    async def handle_async(message):
        await asyncio.to_thread(together.wait, 30)
        shop.info("handles %s", message.data)

    assert run_handler(handle_async if is_async else handle, threads=4) == ProcessResult()

    expected = {(f"handles {n}", "jobs", message.pk) for n, message in enumerate(messages)}
    assert records_of_shop(records) == expected


@pytest.mark.parametrize(
    ("extra", "names"), [(None, (None, None)), ({"queue": "others", "id": 7}, ("others", 7))]
)
def test_record_outside_a_handler_keeps_its_own_attributes(records, extra, names):
    shop.info("settled", extra=extra)

    assert records_of_shop(records) == {("settled", *names)}


def test_thread_of_a_handler_does_not_inherit_the_message():
    current_message.set(CurrentMessage("jobs", 1))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(current_message.get()))
    thread.start()
    thread.join()
    current_message.set(None)

    assert seen == [None]


@pytest.mark.django_db(transaction=True)
def test_records_of_a_worker_have_no_body(make_queue, records):
    make_queue("jobs", max_delivery_count=2, backoff_base=0)
    enqueue_many("jobs", [{"secret": SECRET}] * 3)

    def fail(message):
        raise RuntimeError("no")

    assert run_handler(fail) == ProcessResult()

    levels = {record.levelname for record in records() if record.name.startswith("django_mqlite")}
    assert {"INFO", "WARNING", "ERROR"} <= levels
    assert not [r for r in records() if SECRET in r.getMessage() or SECRET in str(r.exc_text)]


@pytest.mark.django_db(transaction=True)
def test_failure_is_logged_with_its_details_and_no_body(queue, caplog):
    Message.objects.enqueue("jobs", SECRET, subject="a letter", max_delivery_count=2)

    for _ in range(2):
        (message,) = Message.objects.claim("jobs", worker="host:1:ab")
        message.abandon(delay=0, error="no")

    failure, dead_letter = [record for record in caplog.records if record.name == "django_mqlite"]
    assert (failure.levelname, dead_letter.levelname) == ("WARNING", "ERROR")
    for delivery, record in enumerate((failure, dead_letter), 1):
        assert (record.queue, record.id) == ("jobs", message.pk)
        assert (record.subject, record.worker) == ("a letter", "host:1:ab")
        assert record.delivery == delivery
        assert SECRET not in repr(vars(record))


def test_documented_logging_settings_print_queue_and_id(database):
    messages = [database.enqueue(queue, {"secret": SECRET}) for queue in ("says", "says-async")]

    worker = database.start("--queues=says,says-async", "--burst")

    assert worker.ended_well()
    for message in messages:
        assert f"shop {message.queue}#{message.pk} handled" in worker.output
    assert SECRET not in worker.output


@pytest.mark.parametrize(
    ("command", "text", "count"),
    [
        (["runworker"], " INFO worker ", 1),
        (["runworker", "--processes=2"], " INFO worker ", 2),
        (["runreaper"], "reaper has started", 1),
    ],
    ids=str,
)
def test_commands_log_in_a_project_without_logging_settings(database, command, text, count):
    worker = database.run(*command, MQLITE_TEST_NO_LOGGING="1")

    worker.wait_said(text, count)
    assert worker.output.count(" serves ") == (count if "runworker" in command else 0)


HOSTILE = "a\nb\x1b[31m\u202e"
ESCAPED = "a\\nb\\x1b[31m\\u202e"


@pytest.mark.django_db(transaction=True)
def test_control_characters_of_a_message_are_escaped(make_queue, records):
    make_queue("jobs", max_delivery_count=2, backoff_base=0)
    enqueue("jobs", 1, subject=HOSTILE, message_id=HOSTILE)

    def fail(message):
        raise RuntimeError(HOSTILE)

    assert run_handler(fail) == ProcessResult()

    settled = [record for record in records() if "message #" in record.getMessage()]
    assert len(settled) == 2
    for record in settled:
        assert ESCAPED in record.getMessage()
        assert HOSTILE not in record.getMessage()
        assert (record.subject, record.message_id) == (ESCAPED, ESCAPED)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("error", "level"),
    [(Retry("later", delay=60), logging.INFO), (RuntimeError("no"), logging.WARNING)],
)
def test_requested_retry_is_not_logged_as_a_failure(queue, records, error, level):
    enqueue("jobs", 1)

    def fail(message):
        raise error

    assert run_handler(fail) == ProcessResult()

    (record,) = [record for record in records() if "delivered again" in record.getMessage()]
    assert record.levelno == level
    assert ("as its handler requested" in record.getMessage()) == (level == logging.INFO)
