"""The threads in which handlers run."""

import threading
from queue import SimpleQueue

import pytest

from django_mqlite.models import Message
from django_mqlite.worker.executor import DeliveryResult
from django_mqlite.worker.pool import Pool
from tests.support.waiting import wait_until


class NoLoop:
    """For pools whose messages are none for it."""

    def close(self):
        pass


class Handlers:
    """Each started message runs until the test lets one go."""

    def __init__(self):
        self.started = SimpleQueue()
        self.go_on = threading.Semaphore(0)
        self.finished = SimpleQueue()

    def run(self, message):
        self.started.put((message, threading.current_thread().name))
        self.go_on.acquire()
        return DeliveryResult(message=message, error=None)

    def on_finished(self):
        self.finished.put(None)

    def let_end(self, count=1):
        for _ in range(count):
            self.go_on.release()
        for _ in range(count):
            self.finished.get(timeout=30)


@pytest.fixture
def handlers():
    return Handlers()


@pytest.fixture
def pool(handlers):
    pool = Pool(handlers.run, threads=2, on_finished=handlers.on_finished)
    yield pool
    handlers.let_end(len(pool.running))
    pool.take_finished()
    pool.close()


def test_messages_run_at_once_in_threads_of_their_own(pool, handlers):
    first, second = Message(id=1), Message(id=2)

    pool.start(first)
    pool.start(second)

    ran = dict([handlers.started.get(timeout=30), handlers.started.get(timeout=30)])
    assert set(ran) == {first, second}
    assert len(set(ran.values())) == 2
    assert pool.running == [first, second]
    assert pool.free == 0


def test_a_thread_is_free_once_its_message_has_been_taken(pool, handlers):
    message = Message(id=1)
    pool.start(message)
    handlers.let_end()
    assert pool.free == 1

    (finished,) = pool.take_finished()

    assert finished.message is message
    assert pool.free == 2
    assert pool.running == []
    assert pool.take_finished() == []


def test_a_message_that_comes_again_while_its_lost_delivery_runs_has_a_thread_of_its_own(
    pool, handlers
):
    lost, again = Message(id=1), Message(id=1)
    pool.start(lost)

    pool.start(again)
    assert pool.free == 0

    handlers.let_end(2)
    assert {id(finished.message) for finished in pool.take_finished()} == {id(lost), id(again)}
    assert pool.free == 2


def test_closing_ends_idle_threads(handlers):
    before = set(threading.enumerate())
    pool = Pool(handlers.run, threads=3, on_finished=handlers.on_finished)
    assert len(set(threading.enumerate()) - before) == 3

    pool.close()

    assert set(threading.enumerate()) <= before


def test_closing_does_not_wait_for_a_handler_that_does_not_end(handlers):
    before = set(threading.enumerate())
    pool = Pool(handlers.run, threads=2, on_finished=handlers.on_finished)
    pool.start(Message(id=1))
    handlers.started.get(timeout=30)

    pool.close()

    assert [message.pk for message in pool.running] == [1]
    handlers.let_end()
    wait_until(lambda: set(threading.enumerate()) <= before, "the threads to end")


def test_who_starts_a_message_does_not_wait_until_it_is_known_how_it_runs(handlers):
    """To know whether a task is a coroutine, its module may have to be imported."""
    asked, go_on = [], threading.Event()

    def is_async(message):
        asked.append(threading.current_thread())
        go_on.wait(30)
        return False

    pool = Pool(
        handlers.run, threads=1, on_finished=handlers.on_finished, is_async=is_async, loop=NoLoop()
    )
    message = Message(id=1)

    pool.start(message)
    assert pool.cancel(message, TimeoutError()) is False
    go_on.set()
    handlers.let_end()

    pool.take_finished()
    pool.close()
    assert asked
    assert threading.current_thread() not in asked


def test_an_import_that_raises_anything_ends_the_delivery_and_not_the_thread(handlers):
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
