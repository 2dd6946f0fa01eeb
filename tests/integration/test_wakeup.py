"""What ends a worker's rest, and the doorbell that commits ring."""

import errno
import select
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connections, transaction

from django_mqlite.doorbell import doorbell_path, ring_doorbell
from django_mqlite.models import Message
from django_mqlite.worker import wakeup as wakeups
from django_mqlite.worker.wakeup import FAST_POLL, SLOW_POLL, Wakeup
from tests.support.verbs import claim_one

pytestmark = pytest.mark.django_db(transaction=True)

hears_doorbells = pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows has neither inotify nor kqueue; the fast poll is all there is",
)
LONG = 60.0
"""Seconds that no test waits unless it fails."""


@pytest.fixture
def wakeup():
    with closing(Wakeup("default")) as wakeup:
        wakeup.wait(0)
        yield wakeup


def rung(wakeup: Wakeup) -> bool:
    """Whether somebody has rung since the last rest; the rest after it would end at once."""
    found = bool(select.select([wakeup._doorbell], [], [], 0)[0])
    wakeup.wait(0)
    return found


@pytest.fixture
def hung(queue, wakeup):
    """A doorbell that has been silent since the queue was made."""
    wakeup.wait(0)
    return wakeup


def enqueue(**options):
    return Message.objects.enqueue("jobs", None, **options)


def test_a_notice_ends_the_rest_also_one_that_came_before(wakeup):
    wakeup.notify()
    wakeup.notify()

    wakeup.wait(LONG)

    assert select.select([wakeup._reader], [], [], 0)[0] == []


def test_a_notice_after_a_rest_ends_the_next_one(wakeup):
    for _ in range(3):
        wakeup.notify()
        wakeup.wait(LONG)

    assert select.select([wakeup._reader], [], [], 0)[0] == []


def test_of_notices_that_come_together_one_is_sent(wakeup):
    for _ in range(3):
        wakeup.notify()

    assert wakeup._reader.recv(10) == b"!"


def test_more_notices_than_anybody_reads_do_not_block(wakeup):
    for _ in range(100_000):
        wakeup.notify()

    wakeup.wait(LONG)


def test_a_notice_after_the_end_is_nothing():
    wakeup = Wakeup("default")
    wakeup.close()

    wakeup.notify()


@hears_doorbells
def test_an_enqueue_rings(hung):
    enqueue()

    assert rung(hung)


@hears_doorbells
def test_transaction_rings_the_doorbell_after_commit(hung):
    with transaction.atomic():
        enqueue()
        enqueue()
        assert not rung(hung)

    assert rung(hung)


@hears_doorbells
def test_a_rollback_does_not_ring(hung):
    with transaction.atomic():
        enqueue()
        transaction.set_rollback(True)

    assert not rung(hung)


@hears_doorbells
def test_a_savepoint_that_is_rolled_back_does_not_ring(hung):
    with transaction.atomic(), transaction.atomic():
        enqueue()
        transaction.set_rollback(True)  # the inner one's

    assert not rung(hung)


@hears_doorbells
def test_a_message_that_is_given_back_rings(hung):
    enqueue()
    message = claim_one("jobs")
    hung.wait(0)

    message.abandon(delay=0)

    assert rung(hung)


@hears_doorbells
def test_a_queue_that_is_resumed_rings(hung, queue):
    queue.pause()
    hung.wait(0)

    queue.resume()

    assert rung(hung)


@hears_doorbells
def test_reading_and_claiming_do_not_ring(hung):
    enqueue()
    hung.wait(0)

    Message.objects.claimable()
    claim_one("jobs")

    assert not rung(hung)


def test_worker_without_a_heard_doorbell_polls_more_often(monkeypatch):
    def refuse(path):
        raise OSError(errno.EMFILE, "too many watches")

    monkeypatch.setattr(wakeups, "_watch", refuse)

    with closing(Wakeup("default")) as deaf:
        assert deaf.poll_interval == FAST_POLL < SLOW_POLL


@hears_doorbells
def test_worker_that_cannot_make_a_doorbell_polls_more_often(monkeypatch, tmp_path):
    monkeypatch.setitem(
        connections["default"].settings_dict, "NAME", str(tmp_path / "nowhere" / "db.sqlite3")
    )

    with closing(Wakeup("default")) as deaf:
        assert deaf.poll_interval == FAST_POLL


@pytest.mark.parametrize("name", ["", ":memory:", "file::memory:?cache=shared"])
def test_a_database_that_is_no_file_has_no_doorbell(name, monkeypatch):
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", name)

    assert doorbell_path("default") is None
    ring_doorbell("default")
    with closing(Wakeup("default")) as deaf:
        assert deaf.poll_interval == FAST_POLL


def test_ringing_where_nobody_has_hung_a_doorbell_makes_no_file(monkeypatch, tmp_path):
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", tmp_path / "db.sqlite3")

    ring_doorbell("default")

    assert doorbell_path("default") == Path(f"{tmp_path}/db.sqlite3-doorbell")
    assert list(tmp_path.iterdir()) == []


@hears_doorbells
def test_a_doorbell_that_is_taken_away_costs_only_the_speed(hung):
    path = doorbell_path("default")
    assert path is not None
    path.unlink()
    hung.wait(0)

    enqueue()

    assert not rung(hung)
    assert hung.poll_interval == SLOW_POLL
