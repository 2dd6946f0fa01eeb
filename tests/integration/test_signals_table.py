"""The table of docs/worker.md: what each ending does to an idle and to a busy worker.

Each row names the tests that prove it; those of one process without a row here are in
test_runworker.py, those of several in test_processes.py, those of SIGKILL in tests/crash.
"""

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.source import ROOT
from tests.support.unruly_app import UNRULY
from tests.support.waiting import wait_until

LONG = 60
TWO = ("--processes=2", "--threads=1", "--queues=jobs")


@pytest.fixture
def busy(database):
    """A worker in a handler that waits for the file `go-on`."""

    def start(*arguments, **options):
        database.queue("jobs", lock_duration=LONG)
        steps = {"started": database.file("started"), "wait_for": database.file("go-on")}
        message = database.enqueue("jobs", steps)
        worker = database.start("--threads=1", "--queues=jobs", *arguments, **options)
        wait_until((database.beside / "started.1").exists, "the handler to start")
        return worker, message

    return start


@pytest.fixture
def go_on(database):
    return database.beside.joinpath("go-on").touch


@pytest.fixture
def children():
    """The children of a process, killed in the end whatever happens."""
    found = []

    def children(worker):
        found.extend(psutil.Process(worker.pid).children())
        return found

    yield children
    for child in found:
        if child.is_running():
            child.kill()


def test_every_row_of_the_table_names_tests_that_exist():
    text = (ROOT / "docs" / "worker.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| (idle|busy), ", line)]
    assert len(rows) == 15

    for row in rows:
        cited = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert cited, row
        for path, name in cited:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), (path, name)


# Busy × INT


def test_a_busy_worker_that_is_interrupted_ends_its_handlers(database, busy, go_on):
    worker, message = busy()

    worker.signal(signal.SIGINT)
    worker.wait_said("no more claims")
    assert database.state(message) == "locked"
    go_on()

    assert worker.ended_well()
    assert database.state(message) == "gone"


# Idle × second signal, KILL


def test_signals_that_come_on_top_of_each_other_end_an_idle_worker(database):
    worker = database.start().wait_ready()
    after = database.scalar("SELECT count(*) FROM mqlite_meta")

    worker.terminate()
    worker.terminate()

    assert worker.exit_code() in (0, 128 + signal.SIGTERM)
    assert after >= 1
    assert database.is_sound()


def test_an_idle_worker_that_is_killed_leaves_a_sound_file_and_no_lease(database):
    worker = database.start().wait_ready()
    wait_until(lambda: database.scalar(REGISTERED) == 1, "the registration")

    worker.kill()

    assert database.is_sound()
    assert database.scalar("SELECT count(*) FROM mqlite_messages WHERE state = 'locked'") == 0
    assert database.start("--burst").ended_well()
    assert database.scalar(REGISTERED) == 0


REGISTERED = "SELECT count(*) FROM mqlite_meta WHERE key LIKE 'worker:%'"


# Parent gone


def test_idle_children_end_when_their_supervisor_is_gone(database, children):
    worker = database.start(*TWO)
    wait_until(lambda: worker.output.count(" serves ") == 2, "both children to serve")
    left = children(worker)

    worker.kill()

    wait_until(lambda: not any(child.is_running() for child in left), "the children to end")
    assert worker.output.count("stopped after 0 messages") == 2


# Reload


@pytest.fixture
def reloading(database):
    """Options for a worker of a project whose code the test may change."""
    project = database.beside / "project"
    project.mkdir()
    code = project / "changing.py"
    code.write_text("VERSION = 1\n")
    environment = {**UNRULY, "PYTHONPATH": str(project), "MQLITE_TEST_IMPORT": "changing"}
    return code, environment


def change(code: Path) -> None:
    """The reloader looks at the time of the last change.

    Python keeps what it compiled while second and size are the same: so the size is another.
    """
    code.write_text("VERSION = 2  # changed\n")


def starts(worker) -> int:
    return worker.output.count(" serves ")


def test_an_idle_worker_starts_anew_when_its_code_changes(database, reloading):
    code, environment = reloading
    worker = database.start("--reload", "--queues=jobs", **environment).wait_ready()
    pid = psutil.Process(worker.pid).pid
    wait_until(lambda: database.scalar(REGISTERED) == 1, "the registration")

    change(code)
    wait_until(lambda: starts(worker) == 2, "the new start")

    assert "code has changed" in worker.output
    assert "imported version 2" in worker.output
    message = database.enqueue("jobs")
    wait_until(lambda: database.state(message) == "gone", "the message")
    assert worker.pid == pid
    worker.terminate()  # the handlers of signals are on the main thread after it, too
    assert worker.ended_well()


def test_worker_restarts_in_its_first_directory(database, reloading):
    code, environment = reloading
    environment["MQLITE_TEST_DATABASE"] = os.path.relpath(database.path, ROOT)
    database.queue("wanders")
    message = database.enqueue("wanders", str(database.beside))
    worker = database.start("--reload", "--queues=wanders", **environment).wait_ready()
    wait_until(lambda: database.state(message) == "gone", "the handler to end")

    change(code)
    wait_until(lambda: starts(worker) == 2, "the new start")

    worker.terminate()
    assert worker.ended_well()


def test_busy_worker_ends_its_handlers_before_a_restart(database, busy, go_on, reloading):
    code, environment = reloading
    worker, message = busy("--reload", **environment)

    change(code)
    worker.wait_said("no more claims")
    assert starts(worker) == 1
    go_on()
    wait_until(lambda: starts(worker) == 2, "the new start")

    assert database.state(message) == "gone"
    assert len(database.effects()) == 1
    worker.terminate()
    assert worker.ended_well()


def test_a_handler_too_long_for_a_reload_gives_its_message_back(database, busy, go_on, reloading):
    code, environment = reloading
    worker, message = busy("--reload", "--shutdown-timeout=0.1", **environment)

    change(code)
    wait_until(lambda: starts(worker) == 2, "the new start")
    go_on()
    wait_until(lambda: database.state(message) == "gone", "the completion")

    assert "interrupted" in worker.output
    assert [delivery for _, delivery, _ in database.effects()] == [1]
    worker.terminate()
    assert worker.ended_well()


def test_signal_during_a_reload_ends_the_worker(database, busy, go_on, reloading):
    code, environment = reloading
    worker, message = busy("--reload", **environment)
    change(code)
    worker.wait_said("no more claims")

    worker.terminate()
    go_on()

    assert worker.ended_well()
    assert starts(worker) == 1
    assert database.state(message) == "gone"


def test_a_reloading_worker_can_be_stopped(database, busy, go_on, reloading):
    _, environment = reloading
    worker, message = busy("--reload", **environment)

    worker.terminate()
    worker.wait_said("no more claims")
    go_on()

    assert worker.ended_well()
    assert database.state(message) == "gone"


def test_an_orphaned_worker_of_one_process_drains(busy, go_on, database):
    worker, message = busy(launcher=("-m", "tests.support.in_between"))
    orphan = psutil.Process(worker.pid).children()[0]

    worker.popen.kill()
    go_on()

    wait_until(lambda: not orphan.is_running(), "the orphan to end")
    assert database.row(message) is None


def test_first_signal_to_a_draining_orphan_lets_handlers_finish(busy, go_on, database):
    """A signal to a process group ends the shell first; the worker may notice that before."""
    worker, message = busy(launcher=("-m", "tests.support.in_between"))
    orphan = psutil.Process(worker.pid).children()[0]
    worker.popen.kill()
    worker.wait_said("no more claims")

    orphan.terminate()
    wait_until(lambda: not pending_signals(orphan.pid), "the signal to arrive")
    go_on()

    wait_until(lambda: not orphan.is_running(), "the orphan to end")
    assert database.row(message) is None


def pending_signals(pid: int) -> bool:
    """Return True while the process has a signal that was sent to it and not yet delivered."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "ShdPnd:\t0000000000000000" not in status.read_text()
