"""The samples of docs/worker.md run against the example project, and its options exist."""

import configparser
import json
import logging.config
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing, contextmanager

import pytest

from django_mqlite.logs import MessageFilter
from django_mqlite.management.commands.runworker import Command
from example_project.demo.customers import ACCEPTED, Visit, Wish
from tests.support.pages import blocks_of
from tests.support.shop import MANAGE, answers, free_port, migrated_shop
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE, wait_until

PAGE = ROOT / "docs" / "worker.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language: str, containing: str = "") -> list[str]:
    return [b.text for b in blocks_of(PAGE) if b.language == language and containing in b.text]


def block(language: str, containing: str = "") -> str:
    """Return the only block of the document in this language with this text."""
    (text,) = blocks(language, containing)
    return text


def unit() -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(block("ini"))
    return dict(parser["Service"])


PROCFILES = {server: block("", f"web: {server}") for server in ("gunicorn", "uvicorn")}
COMMANDS = {
    "systemd": shlex.split(unit()["ExecStart"]),
    "Dockerfile": json.loads(block("dockerfile").removeprefix("CMD")),
    "Procfile": shlex.split(re.findall("^worker: (.*)", PROCFILES["gunicorn"], re.MULTILINE)[0]),
}


def localized(command: list[str]) -> list[str]:
    """Return the command with this Python and the example project."""
    python, script, *arguments = command
    assert (python.rpartition("/")[2], script) == ("python", "manage.py")
    return [sys.executable, *MANAGE, *arguments]


def localized_procfile(procfile: str, port: int) -> str:
    """Return the lines with this Python, the example project and a free port."""
    python = shlex.quote(sys.executable)
    replacements = {
        "gunicorn shop.wsgi": f"-m gunicorn example_project.wsgi --bind 127.0.0.1:{port}",
        "uvicorn shop.asgi:": f"-m uvicorn --port {port} example_project.asgi:",
        "python manage.py": "-m example_project.manage",
    }
    for command, replacement in replacements.items():
        procfile = procfile.replace(command, f"{python} {replacement}")
    return procfile


@pytest.fixture
def shop(tmp_path):
    """The environment of the example project with its own database."""
    return migrated_shop(tmp_path / "shop.sqlite3")


@contextmanager
def running(command, shop, tmp_path, *, until):
    """Start the process, wait until it has started, and terminate it at the end."""
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=shop,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(lambda: until(log.read_text()) or process.poll() is not None, "it to start")
        assert process.poll() is None, log.read_text()
        yield process, log
    finally:
        process.terminate()  # honcho takes its processes along
        process.wait(PATIENCE)


BECOMING = ["sh", "-c", f"true; exec {shlex.join(localized(COMMANDS['Procfile']))}"]


@pytest.mark.parametrize(
    "command",
    [*map(localized, COMMANDS.values()), BECOMING],
    ids=[*COMMANDS, "shell that becomes the worker"],
)
def test_command_serves_and_exits_on_a_signal(command, shop, tmp_path):
    assert "exec python manage.py runworker" in TEXT

    with running(command, shop, tmp_path, until=lambda text: " serves " in text) as (process, log):
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 0, log.read_text()
    assert "stopped after 0 messages" in log.read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="NOT TESTED: gunicorn is POSIX")
@pytest.mark.parametrize("procfile", PROCFILES.values(), ids=PROCFILES)
def test_order_accepted_by_a_server_is_handled_by_its_worker(procfile, shop, tmp_path):
    port = free_port()
    path = tmp_path / "Procfile"
    path.write_text(localized_procfile(procfile, port))
    honcho = [sys.executable, "-m", "honcho", "-f", str(path), "-d", str(ROOT), "start"]

    def states() -> list[tuple[str]]:
        with closing(sqlite3.connect(shop["SHOP_DATABASE"])) as database:
            return database.execute("SELECT state FROM mqlite_messages").fetchall()

    with running(honcho, shop, tmp_path, until=lambda _: answers(port)) as (process, log):
        with closing(Visit(port)) as visit:
            answer = visit.place(Wish(reference=str(uuid.uuid4()), customer=1, article=1))

        assert answer.status == ACCEPTED
        wait_until(lambda: states() == [("completed",)], "the worker to handle the order")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    assert "stopped after 1 messages" in log.read_text()


def test_unit_leaves_the_worker_its_shutdown_time():
    command = unit()["ExecStart"].split()
    shutdown_timeout = int(command[command.index("--shutdown-timeout") + 1])

    assert int(unit()["TimeoutStopSec"]) > shutdown_timeout
    assert unit()["Restart"] == "always"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NOT TESTED: no systemd")
def test_systemd_accepts_the_unit(tmp_path):
    text = block("ini").replace(COMMANDS["systemd"][0], sys.executable)
    path = tmp_path / "shop-worker.service"
    path.write_text(text.replace("User=shop\n", "").replace("/srv/shop", str(ROOT)))

    verification = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert [line for line in verification.stderr.splitlines() if path.name in line] == []


def test_logging_sample_configures_a_filter_and_a_formatter():
    namespace: dict = {}
    exec(block("python", "LOGGING = "), namespace)
    configurator = logging.config.DictConfigurator(namespace["LOGGING"])

    (filter_config,) = configurator.config["filters"].values()
    message_filter = configurator.configure_filter(filter_config)
    formatter = configurator.configure_formatter(configurator.config["formatters"]["line"])
    record = logging.LogRecord("shop", logging.INFO, "", 0, "handled", None, None)

    assert isinstance(message_filter, MessageFilter)
    assert message_filter.filter(record)
    assert formatter.format(record) == "INFO None#None handled"


def test_health_sample_has_the_keys_of_the_answer(shop):
    prompt, shown, *_ = block("console", "health").splitlines()
    command = localized(shlex.split(prompt.removeprefix("$ ")))

    answer = subprocess.check_output(command, cwd=ROOT, env=shop, timeout=PATIENCE)

    assert json.loads(answer).keys() == json.loads(shown).keys()


def test_documented_options_are_those_of_the_command():
    class Bare(Command):
        def add_arguments(self, parser):
            pass

    def options(command) -> set[str]:
        parser = command.create_parser("manage.py", "runworker")
        return {option for action in parser._actions for option in action.option_strings}

    documented = set(re.findall(r"^\| `(--[a-z-]+)", TEXT, flags=re.MULTILINE))

    own = {option for option in options(Command()) - options(Bare()) if option.startswith("--")}
    assert documented == own | {"--skip-checks"}
