"""An idle worker wakes up at a notice of its threads or when a commit rings the doorbell."""

import errno
import select
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connections, transaction

from django_mqlite import enqueue
from django_mqlite.doorbell import doorbell_path, ring_doorbell
from django_mqlite.models import Message, Queue
from django_mqlite.worker import wakeup as wakeup_module
from django_mqlite.worker.wakeup import FAST_POLL, SLOW_POLL, Wakeup
from tests.support.verbs import claim_one, enqueue_and_claim

pytestmark = pytest.mark.django_db(transaction=True)

has_doorbell = pytest.mark.skipif(
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


# Notices


@pytest.mark.parametrize("count", [1, 3, 100_000])
def test_notices_end_the_next_wait_as_one(wakeup, count):
    for _ in range(2):
        for _ in range(count):
            wakeup.notify()

        wakeup.wait(LONG)

        assert select.select([wakeup._reader], [], [], 0)[0] == []


def test_notices_before_a_wait_are_sent_once(wakeup):
    for _ in range(3):
        wakeup.notify()

    assert wakeup._reader.recv(10) == b"!"


def test_notice_after_the_end_is_ignored():
    wakeup = Wakeup("default")
    wakeup.close()

    wakeup.notify()


# The doorbell


def enqueue_twice_in_transaction():
    with transaction.atomic():
        enqueue("jobs", None)
        enqueue("jobs", None)


def roll_back():
    with transaction.atomic():
        enqueue("jobs", None)
        transaction.set_rollback(True)


def roll_back_savepoint():
    with transaction.atomic(), transaction.atomic():
        enqueue("jobs", None)
        transaction.set_rollback(True)  # that of the inner block


RINGS = {
    "enqueue": (lambda message: enqueue("jobs", None), True),
    "enqueue in a transaction": (lambda message: enqueue_twice_in_transaction(), True),
    "rollback": (lambda message: roll_back(), False),
    "rollback to a savepoint": (lambda message: roll_back_savepoint(), False),
    "read": (lambda message: Message.objects.claimable(), False),
    "claim": (lambda message: claim_one("jobs"), False),
    "complete": (lambda message: message.complete(), False),
    "abandon": (lambda message: message.abandon(delay=0), True),
    "configure": (lambda message: Queue.objects.configure("jobs", max_in_flight=9), True),
    "configure the same": (lambda message: Queue.objects.configure("jobs", rate=None), False),
    "resume": (lambda message: Queue.objects.get(name="jobs").resume(), True),
}


def is_rung(wakeup: Wakeup) -> bool:
    return bool(select.select([wakeup._doorbell], [], [], 0)[0])


@has_doorbell
@pytest.mark.parametrize("name", RINGS)
def test_commit_rings_if_a_message_may_be_claimable(queue, wakeup, name):
    commit, rings = RINGS[name]
    message = enqueue_and_claim("jobs")
    enqueue("jobs", None)
    if name == "resume":
        queue.pause()
    wakeup.wait(0)

    commit(message)

    assert is_rung(wakeup) == rings


@has_doorbell
@pytest.mark.rule("17.8")
@pytest.mark.parametrize("settle", ["complete", "defer"])
def test_settle_in_a_queue_with_max_in_flight_rings(make_queue, wakeup, settle):
    make_queue("jobs", max_in_flight=1)
    message = enqueue_and_claim("jobs")
    wakeup.wait(0)

    getattr(message, settle)()

    assert is_rung(wakeup)


@has_doorbell
def test_doorbell_rings_after_the_commit(queue, wakeup):
    wakeup.wait(0)

    with transaction.atomic():
        enqueue("jobs", None)
        assert not is_rung(wakeup)


def refuse_watch(path):
    raise OSError(errno.EMFILE, "too many watches")


@pytest.mark.parametrize("name", [None, "nowhere/db.sqlite3"], ids=["no watch", "no directory"])
def test_worker_without_a_doorbell_polls_more_often(monkeypatch, tmp_path, name):
    if name is None:
        monkeypatch.setattr(wakeup_module, "_watch", refuse_watch)
    else:
        settings = connections["default"].settings_dict
        monkeypatch.setitem(settings, "NAME", str(tmp_path / name))

    with closing(Wakeup("default")) as wakeup:
        assert wakeup.poll_interval == FAST_POLL < SLOW_POLL


@pytest.mark.parametrize("name", ["", ":memory:", "file::memory:?cache=shared"])
def test_database_without_a_file_has_no_doorbell(name, monkeypatch):
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", name)

    assert doorbell_path("default") is None
    ring_doorbell("default")
    with closing(Wakeup("default")) as wakeup:
        assert wakeup.poll_interval == FAST_POLL


def test_ring_without_a_doorbell_creates_no_file(monkeypatch, tmp_path):
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", tmp_path / "db.sqlite3")

    ring_doorbell("default")

    assert doorbell_path("default") == Path(f"{tmp_path}/db.sqlite3-doorbell")
    assert list(tmp_path.iterdir()) == []


@has_doorbell
def test_worker_whose_doorbell_is_deleted_polls_slowly(queue, wakeup):
    doorbell_path("default").unlink()
    wakeup.wait(0)

    enqueue("jobs", None)

    assert not is_rung(wakeup)
    assert wakeup.poll_interval == SLOW_POLL
