"""A reader who follows a page: writes its files, types its commands, uses the admin.

In a `python` block the first line names the file; `, at the end` adds to one that is there. In a
`console` block each command is typed, and its output has to be the one shown, `…` standing for
anything. Servers and workers are left running, each in a terminal of its own.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode, urljoin

from tests.support.pages import Block, Call, calls_of
from tests.support.shop import answers, free_port
from tests.support.waiting import PATIENCE, wait_until

FILE = re.compile(r"# (?P<path>[\w/]+\.py)(?P<more>, at the end)?\n")
# The environment is there already, with this package in it.
PREPARED = ("python -m venv", ". .venv/bin/activate", "python -m pip install django-mqlite")
# Asked again until the answer is right, because a worker is at it meanwhile.
LOOKS = ("cat ", "python manage.py mqlite peek")


@dataclass(kw_only=True)
class Walk:
    """A walk in `directory`, with the programs of the environment in `binaries`."""

    directory: Path
    binaries: Path
    marks: Mapping[str, Callable[["Walk"], None]] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    skips: bool = False
    """True if the next block is for another version of Django."""

    def follow(self, block: Block) -> None:
        if self.skips:
            self.skips = False
            return
        match block.language:
            case "python":
                self._write(block)
            case "console":
                for call in calls_of(block):
                    self._type(block, call)
            case "test":
                self.marks[block.text](self)
            case _:
                raise AssertionError(f"{block.place}: no rule for a {block.language} block")

    @cached_property
    def django(self) -> tuple[int, ...]:
        """The version of Django in the environment."""
        version = self._run("python -m django --version")[1]
        return tuple(map(int, version.split(".")[:2]))

    def end(self) -> list[int]:
        """Interrupt every process; return the exit codes."""
        for process in self.running.values():
            process.send_signal(signal.SIGINT)
        return [process.wait(PATIENCE) for process in self.running.values()]

    def kill(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def _write(self, block: Block) -> None:
        named = FILE.match(block.text)
        assert named, f"{block.place}: the first line names no file"
        path = self.directory / named["path"]
        before = path.read_text() if named["more"] else ""
        path.write_text(before + block.text)

    def _type(self, block: Block, call: Call) -> None:
        if call.command.startswith(PREPARED):
            return
        command = call.command.replace("8000", str(self.port))
        for name, ready in (("runserver", self._serves), ("runworker", self._claims)):
            if f"manage.py {name}" in command:
                self._leave_running(name, command)
                wait_until(lambda ready=ready: ready(), f"{name} to start")
                return
        if command.startswith(LOOKS):
            wait_until(lambda: fits(call.shown, self._run(command)[1]), f"{block.place} to show")
            return
        code, output = self._run(command)
        assert code == 0, f"{block.place}: {command}\n{output}"
        assert not call.shown or fits(call.shown, output), f"{block.place}: {output}"

    def _run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if "curl" in command else subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout

    def _leave_running(self, name: str, command: str) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                shlex.split(command),
                cwd=self.directory,
                env=self._environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                executable=str(self.binaries / "python"),
            )

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "PATH": f"{self.binaries}:{os.environ['PATH']}"}
        for name in ("DJANGO_SETTINGS_MODULE", "PYTHONPATH", "VIRTUAL_ENV"):
            environment.pop(name, None)
        return environment

    def _serves(self) -> bool:
        return self._alive("runserver") and answers(self.port)

    def _claims(self) -> bool:
        return self._alive("runworker") and " serves " in self.log("runworker")

    def _alive(self, name: str) -> bool:
        assert self.running[name].poll() is None, self.log(name)
        return True


def fits(shown: str, output: str) -> bool:
    """Return True if the output is what was shown; `…` stands for anything."""
    return bool(re.fullmatch(re.escape(shown).replace("…", ".*"), output.strip(), re.DOTALL))


def redrive_in_the_admin(walk: Walk) -> None:
    """Log in, tick every dead letter, choose the action, confirm."""
    browser = Browser()
    browser.visit(f"http://127.0.0.1:{walk.port}/admin/django_mqlite/deadletter/")
    login = browser.form("username", "password")
    browser.send(login, ("username", "admin"), ("password", "secret"))
    letters = browser.form("action", "_selected_action")
    ticked = [box for box in letters.boxes if box[0] == "_selected_action"]
    (choice,) = {
        (name, value)
        for name, value, text in letters.options
        if text == "Redrive selected dead letters"
    }
    assert ticked
    browser.send(letters, *ticked, choice, ("index", "0"))
    browser.send(browser.form("action", "_selected_action"))


def before_django_6_1(walk: Walk) -> None:
    walk.skips = walk.django >= (6, 1)


def from_django_6_1_on(walk: Walk) -> None:
    walk.skips = walk.django < (6, 1)


@dataclass(kw_only=True)
class Form:
    """A form of a page: its fields as a browser would send them, and its choices."""

    action: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    boxes: list[tuple[str, str]] = field(default_factory=list)
    options: list[tuple[str, str, str]] = field(default_factory=list)
    """Name of the select, value, and the text that a person reads."""

    def names(self) -> set[str]:
        chosen = {name for name, _, _ in self.options}
        return {name for name, _ in (*self.fields, *self.boxes)} | chosen


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open = self._select = self._option = None

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "form":
            self._open = Form(action=attributes.get("action") or "")
            self.forms.append(self._open)
        elif self._open is None:
            return
        elif tag == "input" and attributes.get("name"):
            pair = (attributes["name"], attributes.get("value") or "")
            kind = attributes.get("type", "text")
            if kind == "checkbox":
                self._open.boxes.append(pair)
            elif kind not in ("submit", "button", "reset"):
                self._open.fields.append(pair)
        elif tag == "select":
            self._select = attributes.get("name")
        elif tag == "option":
            self._option = attributes.get("value") or ""

    def handle_data(self, data):
        if self._open is not None and self._option is not None and data.strip():
            self._open.options.append((self._select, self._option, data.strip()))
            self._option = None

    def handle_endtag(self, tag):
        if tag == "form":
            self._open = None
        elif tag == "option":
            self._option = None


class Browser:
    """Keep cookies, and the page and URL of the last answer."""

    def __init__(self) -> None:
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        self.url = ""
        self.page = ""

    def visit(self, url: str, data: bytes | None = None) -> None:
        request = urllib.request.Request(url, data=data, headers={"Referer": self.url or url})
        with self._opener.open(request, timeout=30) as response:
            self.url, self.page = response.url, response.read().decode()

    def form(self, *names: str) -> Form:
        """Return the one form of the page that has all of these fields."""
        parser = _Forms()
        parser.feed(self.page)
        (form,) = [form for form in parser.forms if form.names() >= set(names)]
        return form

    def send(self, form: Form, *more: tuple[str, str]) -> None:
        """Send the form; the given fields replace those of the page."""
        given = {name for name, _ in more}
        fields = [pair for pair in form.fields if pair[0] not in given]
        self.visit(urljoin(self.url, form.action), urlencode([*fields, *more]).encode())


THIS_ENVIRONMENT = Path(sys.executable).parent
MARKS = {
    "before Django 6.1": before_django_6_1,
    "from Django 6.1 on": from_django_6_1_on,
    "redrive in the admin": redrive_in_the_admin,
}
