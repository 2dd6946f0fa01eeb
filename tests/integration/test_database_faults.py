"""A database that fails while a worker runs: told once with what to do, waited for, nothing lost.

Locked at the moment of settling: test_runworker.py. How long the rests are: unit/test_faults.py.
"""

import logging
import re
import shutil
from itertools import count
from pathlib import Path

import pytest
from django.db import OperationalError, connection

from django_mqlite.handlers import Handler
from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
from django_mqlite.worker import database_errors
from django_mqlite.worker.leases import LeaseRenewer
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.process import ProcessResult, run_worker_process
from django_mqlite.worker.shutdown import Shutdown
from django_mqlite.worker.watchdogs import CHECK_INTERVAL, DatabaseFiles
from tests.support import engines
from tests.support.unruly_app import UNRULY
from tests.support.verbs import state_of
from tests.support.waiting import wait_until

COUNT = 12
REASON = "x" * 1_000
"""Together more than fits into the pages that there are."""


def run(handle, *, stop=None, **options) -> ProcessResult:
    worker = WorkerOptions(using="default", queues=("jobs",), **options)
    return run_worker_process(
        worker, {"jobs": Handler(queue="jobs", function=handle)}, stop or Shutdown()
    )


# Full


def test_full_disk_while_settling_delays_the_settle_whole(database):
    """The worker's connections may not go beyond so many pages; then somebody makes room."""
    database.queue("jobs", lock_duration=60)
    steps = {"quiet": True, "wait_for": database.file("go-on"), "reject": ["Broken", REASON]}
    messages = [
        database.enqueue("jobs", {**steps, "started": database.file(f"started-{number}")})
        for number in range(COUNT)
    ]
    pages = database.scalar("PRAGMA page_count") + 50
    worker = database.start(
        f"--threads={COUNT}", "--queues=jobs", MQLITE_TEST_MAX_PAGES=str(pages), **UNRULY
    )
    started = lambda delivery: [*database.beside.glob(f"started-*.{delivery}")]  # noqa: E731
    wait_until(lambda: len(started(1)) == COUNT, "the handlers to start")
    with database.other_program() as other:
        other.execute("CREATE TABLE filler (data BLOB)")
        other.execute("INSERT INTO filler VALUES (zeroblob(4000000))")

    database.beside.joinpath("go-on").touch()
    worker.wait_said("the database failed")
    assert "full" in worker.output
    assert "free space" in worker.output
    assert {database.state(message) for message in messages} == {"locked"}
    with database.other_program() as other:
        other.execute("DELETE FROM filler")
    wait_until(lambda: len(database.dead_letters()) == COUNT, "the settlements")

    worker.wait_said("the database is available again")
    assert worker.output.count("the database failed") == 1
    assert started(2) == []
    assert database.scalar("SELECT count(*) FROM mqlite_settlement_receipts") == COUNT
    assert database.is_sound()


# Read-only


@pytest.mark.django_db(transaction=True)
def test_read_only_database_is_logged_and_settled_when_writable(queue, monkeypatch, caplog):
    message = Message.objects.enqueue("jobs", None)
    ran, refused = [], []
    settle_and_claim = MessageManager.settle_and_claim

    def unless_refused(manager, settlements, *arguments, **options):
        read_only = bool(settlements) and len(refused) < 2
        # The connection is the consumer's: it runs in the test's thread.
        connection.connection.execute(f"PRAGMA query_only = {int(read_only)}")
        try:
            return settle_and_claim(manager, settlements, *arguments, **options)
        except OperationalError as error:
            refused.append((error, state_of(message)))
            raise

    monkeypatch.setattr(MessageManager, "settle_and_claim", unless_refused)

    assert run(lambda message: ran.append(message.pk), burst=True) == ProcessResult()

    assert ran == [message.pk]
    assert ["readonly" in str(error) for error, _ in refused] == [True, True]
    assert [state for _, state in refused] == ["locked", "locked"]
    assert state_of(message) == "gone"
    (told,) = [record for record in caplog.records if "the database failed" in record.getMessage()]
    assert "cannot be written" in told.getMessage()


# Replaced


def remove(path, beside):
    path.rename(beside / "gone")


def replace(path, beside):
    copy = shutil.copy(path, beside / "restored")
    shutil.move(copy, path)


STARTS = {
    "worker": (["runworker", "--no-reaper"], 1),
    "processes": (["runworker", "--processes=2", "--threads=1"], 2),
    "reaper": (["runreaper"], 1),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("take_away", [replace, remove])
def test_a_process_whose_file_is_taken_away_says_so_and_ends(database, take_away, suffix, start):
    command, count = STARTS[start]
    worker = database.run(*command)
    ready = lambda: len(re.findall(" serves |reaper has started", worker.output))  # noqa: E731
    wait_until(lambda: ready() == count, "every process to be ready")
    database.close()

    take_away(Path(f"{database.path}{suffix}"), database.beside)

    assert worker.exit_code() == 1
    assert f"queue.sqlite3{suffix} was replaced or removed" in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.parametrize("start", ["--threads=2", "--processes=2"])
def test_a_handler_at_work_does_not_keep_a_process_whose_log_is_removed(database, start):
    database.queue("jobs", lock_duration=600)
    steps = {"started": database.file("started"), "wait_for": database.file("never")}
    database.enqueue("jobs", steps)
    worker = database.start(start, "--queues=jobs")
    wait_until((database.beside / "started.1").exists, "the handler to start")
    database.close()

    remove(Path(f"{database.path}-wal"), database.beside)

    assert worker.exit_code() == 1
    assert "queue.sqlite3-wal was replaced or removed" in worker.output


def test_log_removed_after_a_handler_opened_the_file_is_noticed(database):
    database.queue("opens")
    message = database.enqueue("opens")
    worker = database.start("--queues=opens", **UNRULY)
    wait_until(lambda: database.state(message) == "gone", "the handler to end")

    database.close()  # as the last one, as far as SQLite can see

    assert worker.exit_code() == 1
    assert "was replaced or removed" in worker.output


def test_looks_at_the_files_are_frequent_enough_to_be_within_two_seconds():
    assert CHECK_INTERVAL <= 1


def test_files_that_are_not_there_yet_may_come(tmp_path, django_db_blocker):
    """The file is put into write-ahead logging by another program."""
    path = tmp_path / "queue.sqlite3"
    path.touch()
    with django_db_blocker.unblock(), engines.database("other", path, journal_mode="DELETE"):
        files = DatabaseFiles("other", path)
        assert files.gone() is None

        Path(f"{path}-wal").touch()
        assert files.gone() is None

        Path(f"{path}-wal").unlink()
        assert files.gone() == Path(f"{path}-wal")


# The loop itself


@pytest.mark.django_db(transaction=True)
def test_failing_loop_backs_off_logs_once_and_ends_the_process(queue, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    tries = count(1)
    tried = []

    def fail(manager):
        tried.append(next(tries))
        raise OperationalError("disk I/O error")

    monkeypatch.setattr(database_errors, "GIVE_UP_AFTER", 0.5)
    monkeypatch.setattr(MessageManager, "data_version", fail)

    ended = run(print)

    assert ended.code == 1
    assert isinstance(ended.error, OperationalError)
    assert 3 <= len(tried) <= 5  # after 0, 0.1, 0.3, 0.7 s
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "check its free space and the system log" in told[0].getMessage()


@pytest.mark.django_db(transaction=True)
def test_programming_error_ends_the_process(queue, monkeypatch):
    def fail(manager):
        raise ZeroDivisionError

    monkeypatch.setattr(MessageManager, "data_version", fail)

    with pytest.raises(ZeroDivisionError):
        run(print)


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_leases_nobody_renews_any_more_ends(queue, monkeypatch, caplog):
    def fail(keeper):
        raise ZeroDivisionError

    monkeypatch.setattr(LeaseRenewer, "poll", fail)

    assert run(print).code == 1
    assert "lease renewal failed" in caplog.text
