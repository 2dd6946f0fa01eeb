"""Async handlers run in one loop, are cancelled with their lease, and leave nothing behind.

Timeouts: tests/integration/testing/test_drain_timeouts.py.
"""

import asyncio
import os
import threading

import psutil
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import OperationalError, connections

from django_mqlite import enqueue_many
from django_mqlite.worker.process import ProcessResult
from tests.support.steps import run_handler
from tests.support.verbs import row_of

pytestmark = pytest.mark.django_db(transaction=True)

COUNT = int(os.environ.get("MQLITE_TEST_MANY", "2000"))
"""Messages after which nothing may have grown; `make soak` goes on for half an hour."""


@pytest.fixture
def jobs(make_queue):
    """A queue on real time, whose failed messages are retried at once."""
    return make_queue("jobs", backoff_base=0)


@sync_to_async
def database_connection() -> object:
    """Return the connection that the ORM of async code uses."""
    return connections["default"].connection


def test_loop_runs_as_many_handlers_at_once_as_the_worker_has_slots(jobs):
    enqueue_many("jobs", range(9))
    running, counts, loops = set(), [], set()
    together = asyncio.Event()

    async def meet(message):
        running.add(message.pk)
        counts.append(len(running))
        loops.add((id(asyncio.get_running_loop()), threading.current_thread().name))
        if len(running) == 3:
            together.set()
        async with asyncio.timeout(30):
            await together.wait()
        running.discard(message.pk)

    assert run_handler(meet, threads=3) == ProcessResult()

    assert (max(counts), len(counts)) == (3, 9)
    assert [name for _, name in loops] == ["mqlite-event-loop"]


def test_handler_whose_lease_is_lost_is_cancelled_and_not_settled(jobs, clock, caplog):
    (message,) = enqueue_many("jobs", [None])
    lost = []

    async def lose_the_lease(message):
        if message.delivery_count > 1:
            return
        clock.advance(jobs.lock_duration)  # as if the process had been stopped for so long
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            lost.append(message.lease.lost)
            raise

    assert run_handler(lose_the_lease, reaper=False) == ProcessResult()

    assert lost == [True]
    row = row_of(message)
    assert (row["state"], row["delivery_count"], row["errors"]) == ("locked", 1, None)
    assert sum("is lost" in text for text in caplog.messages) == 1


def test_handler_cannot_take_the_threads_of_other_handlers(jobs):
    first, _ = enqueue_many("jobs", [1, 2])
    results = []

    async def work(message):
        if message.pk == first.pk:
            await asyncio.get_running_loop().shutdown_default_executor()
        results.append(await asyncio.to_thread(lambda: message.data))

    assert run_handler(work, threads=1) == ProcessResult()

    assert results == [1, 2]


def test_connections_of_coroutines_are_used_again(jobs):
    enqueue_many("jobs", range(20))
    opened = set()

    async def work(message):
        await Group.objects.acreate(name=f"effect {message.pk}")
        assert await Group.objects.filter(name=f"effect {message.pk}").aexists()
        opened.add(await database_connection())

    assert run_handler(work, threads=4) == ProcessResult()

    assert Group.objects.count() == 20
    assert len(opened) <= 4


def test_connection_of_a_coroutine_that_had_an_error_is_closed(jobs):
    first, second = enqueue_many("jobs", [1, 2])
    used = {}

    @sync_to_async
    def fail():
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")

    async def work(message):
        if message.pk == first.pk:
            with pytest.raises(OperationalError):
                await fail()
        else:
            await Group.objects.acreate(name="effect")
        used[message.pk] = await database_connection()

    assert run_handler(work) == ProcessResult()

    assert used[first.pk] is not used[second.pk]
    assert Group.objects.count() == 1


def test_query_logs_with_debug_do_not_grow(jobs, settings):
    """Django keeps thousands of queries for each connection: the loop's and the consumer's."""
    settings.DEBUG = True
    enqueue_many("jobs", range(100))
    lengths = []

    async def work(message):
        await Group.objects.acount()
        lengths.append(await sync_to_async(lambda: len(connections["default"].queries_log))())

    assert run_handler(work, threads=2) == ProcessResult()

    assert len(lengths) == 100
    assert max(lengths) < 10
    assert len(connections["default"].queries_log) < 50


def test_descriptors_and_memory_do_not_grow_with_the_messages(database):
    queues = ("noop", "noop-async")
    database.queue("noop-async", lock_duration=60)
    worker = database.start(f"--queues={','.join(queues)}", MQLITE_TEST_DEBUG="1")
    process = psutil.Process(worker.pid)

    def handle(count) -> tuple[int, float]:
        for queue in queues:
            database.enqueue_many(queue, count // 2)
        database.wait_empty(seconds=300)
        return process.num_fds(), process.memory_info().rss / 2**20

    descriptors, megabytes = handle(600)
    descriptors_later, megabytes_later = handle(COUNT)

    assert descriptors_later <= descriptors
    assert megabytes_later - megabytes < 5
    worker.stop()
