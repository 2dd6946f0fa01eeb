"""Async handlers: many at once in one loop, ended where they must end, and nothing left behind."""

import asyncio
import os
import threading

import psutil
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import OperationalError, connections

from django_mqlite.handlers import Handler
from django_mqlite.models import Message, Queue
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import ProcessResult, run_worker_process
from django_mqlite.worker.shutdown import Shutdown
from tests.support.unruly_app import UNRULY
from tests.support.verbs import row_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

COUNT = int(os.environ.get("MQLITE_TEST_MANY", "2000"))
"""Messages after which nothing may have grown; `make soak` goes on for half an hour."""


def work_until_idle(handle, *, timeout_ms=None, stop=None, **options) -> ProcessResult:
    worker = WorkerOptions(**{"using": "default", "queues": ("jobs",), "burst": True, **options})
    handler = Handler(queue="jobs", function=handle, timeout_ms=timeout_ms)
    return run_worker_process(worker, {"jobs": handler}, stop or Shutdown())


def enqueue(count):
    return Message.objects.enqueue_many("jobs", [None] * count)


@pytest.fixture
def jobs(make_queue):
    """A queue on real time, whose failed messages come back at once."""
    return make_queue("jobs", backoff_base=0)


def test_as_many_run_at_once_as_there_are_slots_in_one_loop(jobs):
    enqueue(9)
    running, most, loops = set(), [], set()
    together = asyncio.Event()

    async def meet(message):
        running.add(message.pk)
        most.append(len(running))
        loops.add((id(asyncio.get_running_loop()), threading.current_thread().name))
        if len(running) == 3:
            together.set()
        async with asyncio.timeout(30):
            await together.wait()
        running.discard(message.pk)

    assert work_until_idle(meet, threads=3) == ProcessResult()

    assert max(most) == 3
    assert len(most) == 9
    assert {name for _, name in loops} == {"mqlite-event-loop"}
    assert len(loops) == 1


def test_a_handler_beyond_its_timeout_is_cancelled_and_its_message_fails(jobs):
    (message,) = enqueue(1)
    seen = []

    async def wait_too_long(message):
        if message.delivery_count > 1:
            return
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    Queue.objects.configure("jobs", retain_completed=3_600)
    assert work_until_idle(wait_too_long, timeout_ms=50) == ProcessResult()

    row = row_of(message)
    assert seen == ["cancelled"]
    assert (row["state"], row["delivery_count"]) == ("completed", 2)
    (error,) = row["errors"]
    assert "timeout" in error["message"]


def test_a_handler_whose_lease_is_lost_is_cancelled_and_its_outcome_not_written(
    jobs, clock, caplog
):
    (message,) = enqueue(1)
    seen = []

    async def lose_the_lease(message):
        if message.delivery_count > 1:
            return
        clock.advance(jobs.lock_duration)  # as if the process had been stopped for so long
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(message.lease.lost)
            raise

    assert work_until_idle(lose_the_lease, reaper=False) == ProcessResult()

    assert seen == [True]
    row = row_of(message)
    assert (row["state"], row["delivery_count"], row["errors"]) == ("locked", 1, None)
    assert sum("is lost" in record.getMessage() for record in caplog.records) == 1


def test_connections_of_coroutines_are_kept_for_the_next_not_piled_up(jobs):
    enqueue(20)
    opened = set()

    async def work(message):
        await Group.objects.acreate(name=f"effect {message.pk}")
        assert await Group.objects.filter(name=f"effect {message.pk}").aexists()
        opened.add(await connection_in_use())

    assert work_until_idle(work, threads=4) == ProcessResult()

    assert Group.objects.count() == 20
    assert len(opened) <= 4


@sync_to_async
def connection_in_use() -> int:
    """Which connection the ORM of async code has."""
    return id(connections["default"].connection)


def test_a_connection_that_had_an_error_is_not_handed_on(jobs):
    first, second = enqueue(2)
    left = {}

    @sync_to_async
    def fail():
        with connections["default"].cursor() as cursor:
            left[first.pk] = connections["default"].connection
            cursor.execute("SELECT nothing FROM nowhere")

    async def work(message):
        if message.pk == first.pk:
            with pytest.raises(OperationalError):
                await fail()
        else:
            await Group.objects.acreate(name="effect")
            left[message.pk] = await sync_to_async(lambda: connections["default"].connection)()

    assert work_until_idle(work, threads=1) == ProcessResult()

    assert left[first.pk] is not left[second.pk]
    assert Group.objects.count() == 1


def test_with_debug_nobody_remembers_the_queries_of_earlier_messages(jobs, settings):
    """Django keeps thousands of them for each connection: the loop's and the consumer's."""
    settings.DEBUG = True
    enqueue(100)
    remembered = []

    async def work(message):
        await Group.objects.acount()
        remembered.append(await queries_remembered())

    @sync_to_async
    def queries_remembered() -> int:
        return len(connections["default"].queries_log)

    assert work_until_idle(work, threads=2) == ProcessResult()

    assert len(remembered) == 100
    assert max(remembered) < 10
    assert len(connections["default"].queries_log) < 50


def test_many_messages_leave_descriptors_and_memory_as_they_are_even_with_debug(database):
    queues = ("noop", "noop-async")
    database.queue("noop-async", lock_duration=60)
    worker = database.start(f"--queues={','.join(queues)}", MQLITE_TEST_DEBUG="1", **UNRULY)
    process = psutil.Process(worker.pid)

    def work_through(count) -> tuple[int, float]:
        for queue in queues:
            database.enqueue_many(queue, count // 2)
        wait_until(lambda: database.left() == 0, "every message to be handled", seconds=300)
        return process.num_fds(), process.memory_info().rss / 2**20

    descriptors, megabytes = work_through(600)
    descriptors_then, megabytes_then = work_through(COUNT)

    assert descriptors_then <= descriptors
    assert megabytes_then - megabytes < 5
    worker.terminate()
    assert worker.ended_well()
