"""What docs/worker.md shows is run: its commands against the example project, its options read."""

import configparser
import json
import logging.config
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from django_mqlite.logs import MessageFilter
from django_mqlite.management.commands.runworker import Command
from tests.support.pages import blocks_of
from tests.support.shop import MANAGE, migrated_shop
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE, wait_until

PAGE = ROOT / "docs" / "worker.md"
TEXT = PAGE.read_text(encoding="utf-8")


def block(language: str, containing: str = "") -> str:
    """The one block of the document in this language."""
    blocks = [each.text for each in blocks_of(PAGE) if each.language == language]
    (found,) = [text for text in blocks if containing in text]
    return found


def unit() -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(block("ini"))
    return dict(parser["Service"])


def procfile() -> dict[str, str]:
    return dict(line.split(": ", 1) for line in block("", "web: gunicorn").splitlines())


def dockerfile() -> list[str]:
    instruction, _, arguments = block("dockerfile").strip().partition(" ")
    assert instruction == "CMD"
    return json.loads(arguments)


COMMANDS = {
    "systemd": shlex.split(unit()["ExecStart"]),
    "Dockerfile": dockerfile(),
    "Procfile": shlex.split(procfile()["worker"]),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The environment of the example project with a database of its own."""
    return migrated_shop(tmp_path_factory.mktemp("shop") / "shop.sqlite3")


def here(command: list[str]) -> list[str]:
    """The same command with this Python and the example project."""
    python, script, *arguments = command
    assert python.rpartition("/")[2] == "python"
    assert script == "manage.py"
    return [sys.executable, *MANAGE, *arguments]


@contextmanager
def serving(command, shop, tmp_path):
    """The process, once it serves; killed in the end if it still runs."""
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=shop, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until(
            lambda: " serves " in log.read_text() or process.poll() is not None, "it to serve"
        )
        assert process.poll() is None, log.read_text()
        yield process, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", COMMANDS)
def test_command_serves_and_ends_on_a_signal(name, shop, tmp_path):
    with serving(here(COMMANDS[name]), shop, tmp_path) as (process, log):
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 0, log.read_text()
    assert "stopped after 0 messages" in log.read_text()


def test_a_shell_that_becomes_the_worker_passes_the_signal_on(shop, tmp_path):
    assert "exec python manage.py runworker" in TEXT
    line = f"true; exec {shlex.join(here(COMMANDS['Procfile']))}"

    with serving(["sh", "-c", line], shop, tmp_path) as (process, log):
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 0, log.read_text()
    assert "stopped after 0 messages" in log.read_text()


def test_unit_leaves_the_worker_its_shutdown_time():
    command = unit()["ExecStart"].split()
    grace = int(command[command.index("--shutdown-timeout") + 1])

    assert int(unit()["TimeoutStopSec"]) > grace
    assert unit()["Restart"] == "always"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NOT TESTED: no systemd")
def test_systemd_understands_the_unit(tmp_path):
    text = block("ini").replace(COMMANDS["systemd"][0], sys.executable)
    text = text.replace("User=shop\n", "").replace("/srv/shop", str(ROOT))
    path = tmp_path / "shop-worker.service"
    path.write_text(text)

    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert [line for line in verified.stderr.splitlines() if path.name in line] == []


def test_the_logging_sample_is_one():
    namespace: dict = {}
    exec(block("python", "LOGGING = "), namespace)
    configurator = logging.config.DictConfigurator(namespace["LOGGING"])

    (filter_name,) = configurator.config["filters"]
    found = configurator.configure_filter(configurator.config["filters"][filter_name])
    formatter = configurator.configure_formatter(configurator.config["formatters"]["line"])
    record = logging.LogRecord("shop", logging.INFO, "", 0, "handled", None, None)

    assert isinstance(found, MessageFilter)
    assert found.filter(record)
    assert formatter.format(record) == "INFO None#None handled"


def test_the_health_sample_is_what_is_answered(shop):
    command = shlex.split(block("console", "health").splitlines()[0].removeprefix("$ "))
    shown = json.loads(block("console", "health").splitlines()[1])

    answer = subprocess.run(
        here(command),
        cwd=ROOT,
        env=shop,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )

    assert json.loads(answer.stdout).keys() == shown.keys()


def test_every_option_is_documented_and_every_documented_one_exists():
    parser = Command().create_parser("manage.py", "runworker")
    ours = {
        option
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    django = {
        option
        for action in type("Bare", (Command,), {"add_arguments": lambda self, parser: None})()
        .create_parser("manage.py", "runworker")
        ._actions
        for option in action.option_strings
    }
    shown = set(re.findall(r"^\| `(--[a-z-]+)", TEXT, flags=re.MULTILINE))

    assert shown == ours - django | {"--skip-checks"}
