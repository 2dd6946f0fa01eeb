"""The commands in a shell: Ctrl-C, a closed or full output, and colors on a real terminal."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios

import psutil
import pytest
from django.core.management import get_commands, load_command_class

from django_mqlite.management.cli.command import ShellCommand
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE, wait_until

MQLITE = f"{sys.executable} -m django mqlite"
REAPER = f"{sys.executable} -m django runreaper"
WORKER = f"{sys.executable} -m django runworker --queues jobs"
PRINTING = [
    f"{MQLITE} stats",
    f"{MQLITE} list --json --limit 9999",
    f"{MQLITE} stats --watch 0.1",
    f"{REAPER} --once",
]


@pytest.fixture
def shell(database):
    """Run a line in a shell, with buffered output; return the finished process."""
    database.enqueue_many("jobs", 300, {"text": "x" * 200})
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

    def run(line, **variables):
        return subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=ROOT,
            env={**buffered, **database.environment(), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )

    return run


def test_every_command_ends_as_a_shell_command():
    names = [name for name, app in get_commands().items() if app == "django_mqlite"]

    assert {"mqlite", "runworker", "runreaper"} <= set(names)
    for name in names:
        assert isinstance(load_command_class("django_mqlite", name), ShellCommand)


@pytest.mark.parametrize("command", PRINTING)
def test_reader_that_has_ended_is_no_error(shell, command):
    process = shell(f"{command} | true")

    assert process.stderr == ""
    assert process.returncode == 141


def test_reader_gets_what_it_reads(shell):
    process = shell(f"{MQLITE} list --limit 9999 | head -1")

    assert process.stdout.split() == ["id", "queue", "state", "age"]
    assert process.stderr == ""


@pytest.mark.parametrize("command", PRINTING)
def test_full_disk_is_one_sentence(shell, command):
    process = shell(f"{command} > /dev/full")

    assert process.stderr == (
        "CommandError: The output could not be written: No space left on device. What the command "
        "has changed is kept.\n"
    )
    assert process.returncode == 1


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "<&-"])
def test_closed_streams_are_no_error(shell, redirection):
    process = shell(f"{REAPER} --once {redirection}")

    assert process.stderr == ""
    assert process.returncode == 0


@pytest.mark.parametrize("redirection", ["> /dev/full 2> /dev/full", "<&- >&- 2>&-", "2>&1 | true"])
def test_workers_do_not_need_their_output(shell, database, redirection):
    process = shell(f"{WORKER} --burst --processes 2 {redirection}")

    assert (process.returncode, process.stderr) == (0, "")
    assert database.left() == 0


def test_confirmation_without_stdin_is_refused(shell):
    process = shell(f"{MQLITE} cancel 1 <&-")

    assert "without a terminal: pass --yes. Nothing was done." in process.stderr
    assert process.returncode == 1


def test_failure_whose_reader_has_ended_has_no_traceback(shell):
    process = shell(f"{MQLITE} show 99999 2>&1 | true")

    assert process.stderr == ""
    assert process.returncode in (1, 141)


@pytest.mark.parametrize("command", ["tail", "stats --watch"])
def test_command_that_runs_until_ctrl_c_ends_with_0(database, command):
    database.queue("jobs")
    process = database.run("mqlite", *command.split(), PYTHONUNBUFFERED="1")
    wait_until(lambda: process.output, "the first output")

    process.signal(signal.SIGINT)

    assert process.ended_well()


def test_other_command_ends_with_130_after_ctrl_c(database):
    database.queue("jobs")
    with database.locked():
        process = database.run("mqlite", "pause", "jobs")
        opened = psutil.Process(process.pid).open_files
        wait_until(
            lambda: str(database.path) in {file.path for file in opened()},
            "the command to open the database",
        )
        process.signal(signal.SIGINT)
        code = process.exit_code()

    assert (code, "Traceback" in process.output) == (130, False)


# Colors on a terminal


@pytest.fixture
def on_terminal(database):
    """Run mqlite on a real terminal of 40 columns and return its output."""

    def run(*arguments, **variables):
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 40))
        environment = {**os.environ, **database.environment(), **variables}
        environment.pop("COLUMNS", None)
        process = subprocess.Popen(
            [*MQLITE.split(), *arguments],
            cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        output = b""
        while part := _read(ours):
            output += part
        os.close(ours)
        process.wait(PATIENCE)
        return output.decode()

    return run


def _read(descriptor):
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed
        return b""


COLOR = re.compile(r"\x1b\[[0-9;]*m")


def test_terminal_gets_colors_and_its_width_is_used(database, on_terminal):
    database.enqueue("jobs")
    database.claim("jobs")[0].reject("Broken")

    text = on_terminal("stats")

    assert COLOR.search(text)
    assert max(map(len, COLOR.sub("", text).splitlines())) <= 40
    assert not COLOR.search(on_terminal("stats", "--no-color"))
    assert not COLOR.search(on_terminal("show", "9", NO_COLOR="1"))
