"""A database that fails while a worker runs: the error is logged once, and nothing is lost.

A database that is locked when a message is settled: test_consumer.py. The delays between the
attempts: tests/unit.
"""

import logging
import re
import shutil
from pathlib import Path

import pytest
from django.db import OperationalError, connection

from django_mqlite.managers import MessageManager
from django_mqlite.models import Message
from django_mqlite.worker import database_errors
from django_mqlite.worker.leases import LeaseRenewer
from django_mqlite.worker.process import ProcessResult
from django_mqlite.worker.watchdogs import CHECK_INTERVAL, DatabaseFiles
from tests.support import engines
from tests.support.steps import run_handler
from tests.support.verbs import state_of
from tests.support.waiting import wait_until

COUNT = 12
REASON = "x" * 1_000
"""Together more than fits into the free pages."""


# Full


def test_full_disk_while_settling_delays_the_settle_whole(database):
    """The connections of the worker are limited to some pages, until space is freed."""
    database.queue("jobs", lock_duration=60)
    steps = {"quiet": True, "reject": ["Broken", REASON]}
    files = [database.file(f"started-{number}") for number in range(COUNT)]
    messages = [database.enqueue_waiting(started=file, **steps) for file in files]
    pages = database.scalar("PRAGMA page_count") + 50
    worker = database.start(f"--threads={COUNT}", "--queues=jobs", MQLITE_TEST_MAX_PAGES=str(pages))
    started = lambda delivery: [*database.beside.glob(f"started-*.{delivery}")]  # noqa: E731
    wait_until(lambda: len(started(1)) == COUNT, "the handlers to start")
    with database.other_program() as other:
        other.execute("CREATE TABLE filler (data BLOB)")
        other.execute("INSERT INTO filler VALUES (zeroblob(4000000))")

    database.go_on()
    worker.wait_said("the database failed")
    assert "full" in worker.output
    assert "free some disk space" in worker.output
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
    ran, refusals = [], []
    settle_and_claim = MessageManager.settle_and_claim

    def settle_unless_read_only(manager, settlements, *arguments, **options):
        read_only = bool(settlements) and len(refusals) < 2
        # The connection is the consumer's: it runs in the test's thread.
        connection.connection.execute(f"PRAGMA query_only = {int(read_only)}")
        try:
            return settle_and_claim(manager, settlements, *arguments, **options)
        except OperationalError as error:
            refusals.append((error, state_of(message)))
            raise

    monkeypatch.setattr(MessageManager, "settle_and_claim", settle_unless_read_only)

    assert run_handler(lambda message: ran.append(message.pk)) == ProcessResult()

    assert ran == [message.pk]
    assert ["readonly" in str(error) for error, _ in refusals] == [True, True]
    assert [state for _, state in refusals] == ["locked", "locked"]
    assert state_of(message) == "gone"
    (failure,) = [text for text in caplog.messages if "the database failed" in text]
    assert "cannot be written" in failure


# Replaced


def remove(path, beside):
    path.rename(beside / "gone")


def replace(path, beside):
    copy = shutil.copy(path, beside / "restored")
    shutil.move(copy, path)


@pytest.fixture
def files(tmp_path, django_db_blocker):
    """Another database in write-ahead logging, and the files of it that a worker watches."""
    path = tmp_path / "queue.sqlite3"
    with django_db_blocker.unblock(), engines.database("other", path):
        yield DatabaseFiles("other", path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("take_away", [replace, remove])
def test_replaced_or_removed_file_is_gone(files, tmp_path, take_away, suffix):
    path = tmp_path / f"queue.sqlite3{suffix}"
    beside = tmp_path / "beside"
    beside.mkdir()
    assert files.gone() is None

    take_away(path, beside)

    assert files.gone() == path


STARTS = {
    "worker": (["runworker", "--no-reaper"], "", replace),
    "processes": (["runworker", "--processes=2", "--threads=1"], "-wal", remove),
    "reaper": (["runreaper"], "-shm", remove),
}


@pytest.mark.parametrize(("command", "suffix", "take_away"), STARTS.values(), ids=STARTS)
def test_process_whose_file_is_taken_away_logs_that_and_exits(database, command, suffix, take_away):
    worker = database.run(*command)
    ready = lambda: re.findall(" serves |reaper has started", worker.output)  # noqa: E731
    wait_until(lambda: len(ready()) == command.count("--processes=2") + 1, "every process to start")
    database.close()

    take_away(Path(f"{database.path}{suffix}"), database.beside)

    assert worker.exit_code() == 1
    assert f"queue.sqlite3{suffix} was replaced or removed" in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.parametrize("start", ["--threads=2", "--processes=2"])
def test_running_handler_does_not_keep_a_process_whose_log_is_removed(database, busy, start):
    worker, _ = busy(start, "--queues=jobs", lease=600)
    database.close()

    remove(Path(f"{database.path}-wal"), database.beside)

    assert worker.exit_code() == 1
    assert "queue.sqlite3-wal was replaced or removed" in worker.output


def test_log_removed_after_a_handler_opened_the_file_is_noticed(database):
    message = database.enqueue("opens")
    worker = database.start("--queues=opens")
    database.wait_gone(message)

    database.close()  # as the last one, as far as SQLite can see

    assert worker.exit_code() == 1
    assert "was replaced or removed" in worker.output


def test_database_files_are_checked_every_second():
    assert CHECK_INTERVAL <= 1


def test_database_files_that_appear_later_are_accepted(tmp_path, django_db_blocker):
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


def raising(error):
    def fail(*arguments, **options):
        raise error

    return fail


@pytest.mark.django_db(transaction=True)
def test_failing_database_is_logged_once_and_ends_the_process(queue, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    attempts = []

    def fail(manager):
        attempts.append(manager)
        raise OperationalError("disk I/O error")

    monkeypatch.setattr(database_errors, "GIVE_UP_AFTER", 0.5)
    monkeypatch.setattr(MessageManager, "data_version", fail)

    result = run_handler(print, burst=False)

    assert (result.code, result.running) == (1, 0)
    assert isinstance(result.error, OperationalError)
    assert 3 <= len(attempts) <= 5  # after 0, 0.1, 0.3, 0.7 s
    (failure,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "check its free space and the system log" in failure.getMessage()


@pytest.mark.django_db(transaction=True)
def test_programming_error_ends_the_process(queue, monkeypatch):
    monkeypatch.setattr(MessageManager, "data_version", raising(ZeroDivisionError))

    with pytest.raises(ZeroDivisionError):
        run_handler(print, burst=False)


@pytest.mark.django_db(transaction=True)
def test_worker_whose_lease_renewal_fails_exits(queue, monkeypatch, caplog):
    monkeypatch.setattr(LeaseRenewer, "poll", raising(ZeroDivisionError))

    assert run_handler(print, burst=False).code == 1
    assert "lease renewal failed" in caplog.text
