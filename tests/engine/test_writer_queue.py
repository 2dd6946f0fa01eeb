"""The threads of a process queue up in order, and nobody waits for the dead."""

import os
import time
from threading import Thread

import pytest

from django_mqlite.sqlite3.writer_queue import WriterQueue, writer_queue_for
from tests.support.waiting import wait_until


class Writer:
    is_writing = True


def soon():
    return time.monotonic() + 60


def test_the_first_goes_in_at_once_and_may_come_again():
    writer_queue, writer = WriterQueue(), Writer()

    assert writer_queue.enter(writer, deadline=0)
    assert writer_queue.enter(writer, deadline=0)


def test_another_waits_until_its_deadline():
    writer_queue, inside, outside = WriterQueue(), Writer(), Writer()
    writer_queue.enter(inside, deadline=0)

    assert not writer_queue.enter(outside, deadline=time.monotonic())

    writer_queue.leave(inside)
    assert writer_queue.enter(outside, deadline=0)


def test_they_go_in_in_the_order_of_their_coming():
    writer_queue, inside = WriterQueue(), Writer()
    writer_queue.enter(inside, deadline=0)
    went_in = []

    def wait(number):
        writer = Writer()
        assert writer_queue.enter(writer, deadline=soon())
        went_in.append(number)
        writer_queue.leave(writer)

    threads = []
    for number in range(5):
        threads.append(Thread(target=wait, args=(number,)))
        threads[-1].start()
        wait_until(lambda: len(writer_queue._queue) == len(threads), "the thread to queue up")
    writer_queue.leave(inside)
    for thread in threads:
        thread.join(60)

    assert went_in == [0, 1, 2, 3, 4]


def test_one_that_has_died_is_not_inside():
    writer_queue, dying = WriterQueue(), Writer()
    writer_queue.enter(dying, deadline=0)

    del dying

    assert writer_queue.enter(Writer(), deadline=0)


def test_one_that_has_ended_without_leaving_lets_those_in_who_wait():
    writer_queue, careless = WriterQueue(), Writer()
    writer_queue.enter(careless, deadline=0)
    waiting = Writer()
    thread = Thread(target=writer_queue.enter, args=(waiting,), kwargs={"deadline": soon()})
    thread.start()
    wait_until(lambda: writer_queue._queue, "the thread to queue up")

    careless.is_writing = False

    thread.join(60)
    assert writer_queue._is_inside(waiting)


def test_one_that_leaves_without_being_inside_waits_no_longer():
    writer_queue, inside, impatient = WriterQueue(), Writer(), Writer()
    writer_queue.enter(inside, deadline=0)
    writer_queue.enter(impatient, deadline=0)

    writer_queue.leave(impatient)
    writer_queue.leave(inside)

    assert writer_queue._inside is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("db.sqlite3", "db.sqlite3"),
        ("db.sqlite3", "./x/../db.sqlite3"),
        ("db.sqlite3", "file:db.sqlite3?mode=rw"),
        ("a b.sqlite3", "file:a%20b.sqlite3"),
        ("file:m?mode=memory&cache=shared", "file:m?mode=memory&cache=shared"),
    ],
)
def test_names_of_one_database_have_one_writer_queue(one, other):
    writer_queue = writer_queue_for(one)

    assert writer_queue_for(other) is writer_queue


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.sqlite3", "b.sqlite3"),
        (":memory:", ":memory:"),
        ("", ""),
        ("file::memory:", "file::memory:"),
        ("file:m?mode=memory", "file:m?mode=memory"),
    ],
)
def test_names_of_different_databases_have_different_ones(one, other):
    writer_queue = writer_queue_for(one)

    assert writer_queue_for(other) is not writer_queue


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_in_a_forked_process_nobody_is_inside():
    writer_queue, writer = writer_queue_for("forked.sqlite3"), Writer()
    writer_queue.enter(writer, deadline=0)

    child = os.fork()
    if not child:
        os._exit(0 if writer_queue.enter(Writer(), deadline=0) else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert not writer_queue.enter(Writer(), deadline=0)


def test_a_writer_that_interrupts_its_own_thread_in_here_gets_its_turn():
    """A signal handler or a finaliser may write at any moment."""
    writer_queue = WriterQueue()

    with writer_queue._guard:
        assert writer_queue.enter(Writer(), deadline=soon())
