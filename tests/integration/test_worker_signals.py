"""The table of docs/worker.md: what ends an idle or a busy worker, and how.

Each row cites the tests that prove it; those of SIGKILL are in tests/crash.
"""

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.source import ROOT
from tests.support.waiting import wait_until
from tests.support.workers import wait_all_gone

LEASE = 60
"""Seconds; it does not expire during a test."""

STOPS = [signal.SIGTERM, signal.SIGINT]

pytestmark = pytest.mark.skipif(
    not hasattr(os, "killpg"), reason="NOT TESTED: groups of processes are POSIX"
)


@pytest.fixture
def jobs(database):
    for queue in ("jobs", "atomic"):
        database.queue(queue, lock_duration=LEASE, max_delivery_count=1)


@pytest.fixture
def reloading(database):
    """A module that the test may change, and options for a worker that imports it."""
    project = database.beside / "project"
    project.mkdir()
    code = project / "changing.py"
    code.write_text("VERSION = 1\n")
    return code, {"PYTHONPATH": str(project), "MQLITE_TEST_IMPORT": "changing"}


def change(code: Path) -> None:
    """Change the file, and its size: Python keeps bytecode while second and size are the same."""
    code.write_text("VERSION = 2  # changed\n")


def rows_of(database, messages):
    rows = [database.row(message) for message in messages]
    return [(row["state"], row["delivery_count"], row["interruptions"]) for row in rows]


def test_table_of_signals_cites_tests_that_exist():
    text = (ROOT / "docs" / "worker.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| (idle|busy)\b", line)]
    assert len(rows) == 16

    for row in rows:
        citations = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert citations, row
        for path, name in citations:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), (path, name)


# Idle


@pytest.mark.parametrize("number", STOPS)
def test_idle_worker_exits_on_a_signal(database, number):
    worker = database.start().wait_ready()

    worker.signal(number)

    assert worker.ended_well()
    assert "stopped after 0 messages" in worker.output


def test_second_signal_ends_an_idle_worker(database):
    worker = database.start().wait_ready()

    worker.terminate()
    worker.terminate()

    assert worker.exit_code() in (0, 128 + signal.SIGTERM)
    assert database.is_sound()


def test_killed_idle_worker_leaves_a_sound_file_and_no_lease(database):
    worker = database.start().wait_ready()
    database.wait_registered(1)

    worker.kill()

    assert database.is_sound()
    assert database.scalar("SELECT count(*) FROM mqlite_messages WHERE state = 'locked'") == 0
    assert database.start("--burst").ended_well()
    assert database.registered() == 0


def test_idle_children_exit_without_their_supervisor(database):
    worker = database.start("--processes=2", "--threads=1").wait_ready(2)
    children = worker.children

    worker.kill()

    wait_all_gone(children)
    assert worker.output.count("stopped after 0 messages") == 2


# Busy


@pytest.mark.parametrize("number", STOPS)
@pytest.mark.parametrize(("processes", "arguments"), [(1, []), (1, ["--reload"]), (2, [])], ids=str)
def test_busy_worker_finishes_its_handlers_on_a_signal(
    database, busy_processes, processes, arguments, number
):
    """systemd and the keyboard send the signal to the whole process group."""
    worker, held = busy_processes(processes, *arguments, launcher="own_group")
    waiting = database.enqueue("jobs")

    os.killpg(worker.pid, number)
    worker.wait_said("no more claims", processes)
    assert {database.state(message) for message in held.values()} == {"locked"}
    database.go_on()

    assert worker.ended_well()
    database.wait_gone(*held.values())
    assert len(database.effects()) == processes
    assert database.row(waiting)["delivery_count"] == 0


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("processes", [1, 2])
def test_handler_beyond_shutdown_timeout_releases_its_message(database, busy_processes, processes):
    worker, held = busy_processes(processes, "--shutdown-timeout=0.1")

    worker.terminate()

    assert worker.ended_well()
    assert rows_of(database, held.values()) == [("active", 0, 1)] * processes
    for message in database.claim("jobs", limit=2):
        assert "stopped" in message.errors[0]["message"]


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("processes", "row"), [(1, ("locked", 1, 0)), (2, ("active", 0, 1))], ids=str
)
def test_atomic_handler_beyond_shutdown_timeout_leaves_no_effect(database, processes, row):
    """It holds the write lock; only a supervisor can release its message."""
    message = database.enqueue_waiting("atomic")
    worker = database.start(
        *(f"--processes={processes}", "--threads=1", "--shutdown-timeout=0.1"),
        MQLITE_TEST_TIMEOUT="0.1",
    )
    database.wait_started()

    worker.terminate()

    assert worker.exit_code() == 1 or processes > 1
    assert "Traceback" not in worker.output or processes > 1
    assert rows_of(database, [message]) == [row]
    assert database.effects() == []


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("second", STOPS)
@pytest.mark.parametrize("processes", [1, 2])
def test_second_signal_ends_a_busy_worker_and_keeps_its_leases(
    database, busy_processes, processes, second
):
    worker, held = busy_processes(processes)
    children = worker.children
    worker.terminate()
    worker.wait_said("no more claims", processes)

    def insist() -> bool:
        """Signal again: a signal at nearly the same time as the first one only repeats it."""
        worker.signal(second)
        return worker.popen.poll() is not None

    wait_until(insist, "the worker to exit")

    assert worker.exit_code() == 128 + second
    wait_all_gone(children)
    assert rows_of(database, held.values()) == [("locked", 1, 0)] * processes


@pytest.mark.usefixtures("jobs")
def test_second_signal_ends_a_worker_whose_output_cannot_be_written(database):
    database.enqueue_waiting("jobs")
    worker = database.start("--skip-checks", launcher="full_disk")
    database.wait_started()

    def insist() -> bool:
        worker.terminate()
        return worker.popen.poll() is not None

    wait_until(insist, "the worker to exit")

    assert worker.exit_code() == 128 + signal.SIGTERM


@pytest.mark.parametrize(("processes", "launcher"), [(1, "child"), (2, "child"), (2, "")], ids=str)
def test_busy_worker_finishes_its_handlers_without_its_parent(
    database, busy_processes, processes, launcher
):
    worker, held = busy_processes(processes, launcher=launcher)
    orphans = psutil.Process(worker.pid).children(recursive=True)
    waiting = database.enqueue("jobs")

    worker.kill()
    worker.wait_said("no more claims", processes)
    database.go_on()

    wait_all_gone(orphans)
    database.wait_gone(*held.values())
    assert len(database.effects()) == processes
    assert database.row(waiting)["delivery_count"] == 0


def test_reaper_ends_without_its_parent(database):
    reaper = database.run("runreaper", launcher="child")
    reaper.wait_said("the reaper has started")
    orphans = psutil.Process(reaper.pid).children()

    reaper.kill()

    wait_all_gone(orphans)


def test_first_signal_after_the_parent_is_gone_lets_handlers_finish(database, busy_processes):
    """A signal to a process group ends the shell first, and the worker may notice that before."""
    worker, held = busy_processes(1, launcher="child")
    (orphan,) = [psutil.Process(pid) for pid in held]
    worker.kill()
    worker.wait_said("no more claims")

    orphan.terminate()
    wait_until(lambda: not has_pending_signals(orphan.pid), "the signal to arrive")
    database.go_on()

    wait_all_gone([orphan])
    database.wait_gone(*held.values())


def has_pending_signals(pid: int) -> bool:
    """Return True while the process has a signal that was sent to it and not yet delivered."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "ShdPnd:\t0000000000000000" not in status.read_text()


# Changed code


def test_idle_worker_restarts_when_its_code_changes(database, reloading):
    code, environment = reloading
    worker = database.start("--reload", "--queues=jobs", **environment).wait_ready()
    database.wait_registered(1)

    change(code)
    worker.wait_ready(2)

    assert "code has changed" in worker.output
    assert "imported version 2" in worker.output
    database.wait_gone(database.enqueue("jobs"))
    worker.stop()  # signals reach the process, which has the same pid, on its main thread


def test_restarted_worker_is_in_its_first_directory(database, reloading):
    code, environment = reloading
    environment["MQLITE_TEST_DATABASE"] = os.path.relpath(database.path, ROOT)
    message = database.enqueue("wanders", str(database.beside))
    worker = database.start("--reload", "--queues=wanders", **environment).wait_ready()
    database.wait_gone(message)

    change(code)
    worker.wait_ready(2)

    worker.stop()


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("is_too_long", [False, True])
def test_busy_worker_finishes_its_handlers_before_a_restart(database, busy, reloading, is_too_long):
    code, environment = reloading
    limits = ["--shutdown-timeout=0.1"] if is_too_long else []
    worker, message = busy("--reload", *limits, **environment)

    change(code)
    if is_too_long:
        worker.wait_ready(2)
        assert "interrupted" in worker.output
    else:
        worker.wait_said("no more claims")
        assert worker.output.count(" serves ") == 1
    database.go_on()
    worker.wait_ready(2)

    database.wait_gone(message)
    assert database.deliveries() == [1]
    worker.stop()


def test_signal_before_a_restart_ends_the_worker(database, busy, reloading):
    code, environment = reloading
    worker, message = busy("--reload", **environment)
    change(code)
    worker.wait_said("no more claims")

    worker.terminate()
    database.go_on()

    assert worker.ended_well()
    assert worker.output.count(" serves ") == 1
    assert database.state(message) == "gone"
