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
    turnstile, writer = WriterQueue(), Writer()

    assert turnstile.enter(writer, deadline=0)
    assert turnstile.enter(writer, deadline=0)


def test_another_waits_until_its_deadline():
    turnstile, inside, outside = WriterQueue(), Writer(), Writer()
    turnstile.enter(inside, deadline=0)

    assert not turnstile.enter(outside, deadline=time.monotonic())

    turnstile.leave(inside)
    assert turnstile.enter(outside, deadline=0)


def test_they_go_in_in_the_order_of_their_coming():
    turnstile, inside = WriterQueue(), Writer()
    turnstile.enter(inside, deadline=0)
    went_in = []

    def wait(number):
        writer = Writer()
        assert turnstile.enter(writer, deadline=soon())
        went_in.append(number)
        turnstile.leave(writer)

    threads = []
    for number in range(5):
        threads.append(Thread(target=wait, args=(number,)))
        threads[-1].start()
        wait_until(lambda: len(turnstile._queue) == len(threads), "the thread to queue up")
    turnstile.leave(inside)
    for thread in threads:
        thread.join(60)

    assert went_in == [0, 1, 2, 3, 4]


def test_one_that_has_died_is_not_inside():
    turnstile, dying = WriterQueue(), Writer()
    turnstile.enter(dying, deadline=0)

    del dying

    assert turnstile.enter(Writer(), deadline=0)


def test_one_that_has_ended_without_leaving_lets_those_in_who_wait():
    turnstile, careless = WriterQueue(), Writer()
    turnstile.enter(careless, deadline=0)
    waiting = Writer()
    thread = Thread(target=turnstile.enter, args=(waiting,), kwargs={"deadline": soon()})
    thread.start()
    wait_until(lambda: turnstile._queue, "the thread to queue up")

    careless.is_writing = False

    thread.join(60)
    assert turnstile._is_inside(waiting)


def test_one_that_leaves_without_being_inside_waits_no_longer():
    turnstile, inside, impatient = WriterQueue(), Writer(), Writer()
    turnstile.enter(inside, deadline=0)
    turnstile.enter(impatient, deadline=0)

    turnstile.leave(impatient)
    turnstile.leave(inside)

    assert turnstile._inside is None


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
def test_names_of_one_database_have_one_turnstile(one, other):
    turnstile = writer_queue_for(one)

    assert writer_queue_for(other) is turnstile


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
    turnstile = writer_queue_for(one)

    assert writer_queue_for(other) is not turnstile


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_in_a_forked_process_nobody_is_inside():
    turnstile, writer = writer_queue_for("forked.sqlite3"), Writer()
    turnstile.enter(writer, deadline=0)

    child = os.fork()
    if not child:
        os._exit(0 if turnstile.enter(Writer(), deadline=0) else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert not turnstile.enter(Writer(), deadline=0)


def test_a_writer_that_interrupts_its_own_thread_in_here_gets_its_turn():
    """A signal handler or a finaliser may write at any moment."""
    turnstile = WriterQueue()

    with turnstile._guard:
        assert turnstile.enter(Writer(), deadline=soon())
