"""The one clock."""

import threading
import time

import pytest

from django_mqlite import timing
from django_mqlite.testing.fake_clock import START_MS, FakeClock
from django_mqlite.timing import moment


def test_without_a_test_it_is_the_wall_clock_in_milliseconds():
    before = time.time_ns() // 1_000_000
    now = timing.now_ms()
    after = time.time_ns() // 1_000_000

    assert before <= now <= after


def test_a_clock_in_use_tells_the_time_in_every_thread_and_goes_when_the_block_ends():
    told = []

    with FakeClock() as fake:
        fake.advance(1)
        thread = threading.Thread(target=lambda: told.append(timing.now_ms()))
        thread.start()
        thread.join()

    assert told == [START_MS + 1_000]
    assert timing.now_ms() > START_MS + 1_000


def test_the_clock_before_comes_back_when_the_block_fails():
    with FakeClock() as outer:
        with pytest.raises(RuntimeError), FakeClock(moment(5)):
            raise RuntimeError

        assert timing.now_ms() == outer.now_ms()
