"""The threads that run handlers."""

import threading
from queue import SimpleQueue

import pytest

from django_mqlite.models import Message
from django_mqlite.worker.executor import DeliveryResult
from django_mqlite.worker.pool import Pool
from tests.support.waiting import wait_until


class NoLoop:
    """An event loop for pools without coroutines."""

    def close(self):
        pass


class Handlers:
    """Handlers that run until the test ends them."""

    def __init__(self):
        self.started = SimpleQueue()
        self.end = threading.Semaphore(0)
        self.finished = SimpleQueue()

    def run(self, message):
        self.started.put((message, threading.current_thread().name))
        self.end.acquire()
        return DeliveryResult(message=message, error=None)

    def on_finished(self):
        self.finished.put(None)

    def finish(self, count=1):
        for _ in range(count):
            self.end.release()
        for _ in range(count):
            self.finished.get(timeout=30)


@pytest.fixture
def handlers():
    return Handlers()


@pytest.fixture
def pool(handlers):
    pool = Pool(handlers.run, threads=2, on_finished=handlers.on_finished)
    yield pool
    handlers.finish(len(pool.running))
    pool.take_finished()
    pool.close()


def test_pool_runs_each_message_in_its_own_thread(pool, handlers):
    first, second = Message(id=1), Message(id=2)

    pool.start(first)
    pool.start(second)

    ran = dict([handlers.started.get(timeout=30), handlers.started.get(timeout=30)])
    assert set(ran) == {first, second}
    assert len(set(ran.values())) == 2
    assert pool.running == [first, second]
    assert pool.free == 0


def test_thread_is_free_after_its_result_was_taken(pool, handlers):
    message = Message(id=1)
    pool.start(message)
    handlers.finish()
    assert pool.free == 1

    (finished,) = pool.take_finished()

    assert finished.message is message
    assert pool.free == 2
    assert pool.running == []
    assert pool.take_finished() == []


def test_redelivered_message_gets_its_own_thread(pool, handlers):
    lost, again = Message(id=1), Message(id=1)
    pool.start(lost)

    pool.start(again)
    assert pool.free == 0

    handlers.finish(2)
    assert {id(finished.message) for finished in pool.take_finished()} == {id(lost), id(again)}
    assert pool.free == 2


def test_closed_pool_ends_idle_threads(handlers):
    before = set(threading.enumerate())
    pool = Pool(handlers.run, threads=3, on_finished=handlers.on_finished)
    assert len(set(threading.enumerate()) - before) == 3

    pool.close()

    assert set(threading.enumerate()) <= before


def test_closed_pool_does_not_wait_for_running_handlers(handlers):
    before = set(threading.enumerate())
    pool = Pool(handlers.run, threads=2, on_finished=handlers.on_finished)
    pool.start(Message(id=1))
    handlers.started.get(timeout=30)

    pool.close()

    assert [message.pk for message in pool.running] == [1]
    handlers.finish()
    wait_until(lambda: set(threading.enumerate()) <= before, "the threads to end")


def test_pool_start_does_not_wait_for_the_import_of_a_task(handlers):
    """Whether a task is a coroutine is known only after its module was imported."""
    threads, imported = [], threading.Event()

    def is_async(message):
        threads.append(threading.current_thread())
        imported.wait(30)
        return False

    pool = Pool(
        handlers.run, threads=1, on_finished=handlers.on_finished, is_async=is_async, loop=NoLoop()
    )
    message = Message(id=1)

    pool.start(message)
    assert pool.cancel(message, TimeoutError()) is False
    imported.set()
    handlers.finish()

    pool.take_finished()
    pool.close()
    assert threads
    assert threading.current_thread() not in threads


def test_import_that_raises_ends_the_delivery_and_not_the_thread(handlers):
    def is_async(message):
        raise KeyboardInterrupt

    pool = Pool(
        handlers.run, threads=1, on_finished=handlers.on_finished, is_async=is_async, loop=NoLoop()
    )

    for number in (1, 2):
        pool.start(Message(id=number))
        handlers.finished.get(timeout=30)
        (finished,) = pool.take_finished()
        assert isinstance(finished.error, KeyboardInterrupt)
    pool.close()
