"""The threads of a process queue up in order; a thread that has died is skipped."""

import os
import time
from threading import Thread

import pytest

from django_mqlite.sqlite3.writer_queue import WriterQueue, writer_queue_for
from tests.support.waiting import wait_until


class Writer:
    is_writing = True


def in_a_minute():
    return time.monotonic() + 60


def test_first_writer_enters_at_once_and_may_enter_again():
    writer_queue, writer = WriterQueue(), Writer()

    assert writer_queue.enter(writer, deadline=0)
    assert writer_queue.enter(writer, deadline=0)


def test_second_writer_waits_until_its_deadline():
    writer_queue, inside, outside = WriterQueue(), Writer(), Writer()
    writer_queue.enter(inside, deadline=0)

    assert not writer_queue.enter(outside, deadline=time.monotonic())

    writer_queue.leave(inside)
    assert writer_queue.enter(outside, deadline=0)


def test_writers_enter_in_order_of_arrival():
    writer_queue, inside = WriterQueue(), Writer()
    writer_queue.enter(inside, deadline=0)
    entered = []

    def wait(number):
        writer = Writer()
        assert writer_queue.enter(writer, deadline=in_a_minute())
        entered.append(number)
        writer_queue.leave(writer)

    threads = []
    for number in range(5):
        threads.append(Thread(target=wait, args=(number,)))
        threads[-1].start()
        wait_until(lambda: len(writer_queue._queue) == len(threads), "the thread to queue up")
    writer_queue.leave(inside)
    for thread in threads:
        thread.join(60)

    assert entered == [0, 1, 2, 3, 4]


def test_writer_that_was_deleted_is_not_inside():
    writer_queue, dying = WriterQueue(), Writer()
    writer_queue.enter(dying, deadline=0)

    del dying

    assert writer_queue.enter(Writer(), deadline=0)


def test_writer_that_ended_without_leaving_is_not_inside():
    writer_queue, ended = WriterQueue(), Writer()
    writer_queue.enter(ended, deadline=0)
    waiting = Writer()
    thread = Thread(target=writer_queue.enter, args=(waiting,), kwargs={"deadline": in_a_minute()})
    thread.start()
    wait_until(lambda: writer_queue._queue, "the thread to queue up")

    ended.is_writing = False

    thread.join(60)
    assert writer_queue._is_current(waiting)


def test_waiting_writer_that_leaves_is_not_in_the_queue():
    writer_queue, inside, impatient = WriterQueue(), Writer(), Writer()
    writer_queue.enter(inside, deadline=0)
    writer_queue.enter(impatient, deadline=0)

    writer_queue.leave(impatient)
    writer_queue.leave(inside)

    assert writer_queue._current is None


@pytest.mark.parametrize(
    ("name", "other", "is_same"),
    [
        ("db.sqlite3", "db.sqlite3", True),
        ("db.sqlite3", "./x/../db.sqlite3", True),
        ("db.sqlite3", "file:db.sqlite3?mode=rw", True),
        ("a b.sqlite3", "file:a%20b.sqlite3", True),
        ("file:m?mode=memory&cache=shared", "file:m?mode=memory&cache=shared", True),
        ("a.sqlite3", "b.sqlite3", False),
        (":memory:", ":memory:", False),
        ("", "", False),
        ("file::memory:", "file::memory:", False),
        ("file:m?mode=memory", "file:m?mode=memory", False),
    ],
)
def test_writer_queue_is_shared_by_all_names_of_a_database(name, other, is_same):
    writer_queue = writer_queue_for(name)

    assert (writer_queue_for(other) is writer_queue) is is_same


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_process_starts_with_an_empty_writer_queue():
    writer_queue, writer = writer_queue_for("forked.sqlite3"), Writer()
    writer_queue.enter(writer, deadline=0)

    child = os.fork()
    if not child:
        os._exit(0 if writer_queue.enter(Writer(), deadline=0) else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert not writer_queue.enter(Writer(), deadline=0)


def test_writer_that_interrupts_its_own_thread_can_enter():
    """A signal handler or a finalizer may write at any time."""
    writer_queue = WriterQueue()

    with writer_queue._guard:
        assert writer_queue.enter(Writer(), deadline=in_a_minute())
