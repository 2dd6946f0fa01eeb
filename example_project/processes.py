"""The shop's processes: start them together, watch them, and always stop them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from types import FrameType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
TAIL_LINES = 30


class DemoError(Exception):
    """An error of the demo; its text is shown to the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A child process. Its output goes to `log` or, without one, to the output of this process."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path | None = None

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log else ""

    def tail(self) -> str:
        lines = self.output().splitlines()[-TAIL_LINES:]
        return "\n".join([f"--- the end of the output of {self.name}", *lines])


@dataclass(slots=True)
class Processes:
    """A context manager that starts child processes and terminates them at the end."""

    log_directory: Path | None = None
    children: list[Child] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            if child.is_running:
                child.popen.send_signal(
                    signal.SIGCONT
                )  # a stopped process would not handle SIGTERM
                child.popen.terminate()
        for child in self.children:
            try:
                child.popen.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.popen.kill()
                child.popen.wait()

    def start(self, name: str, *arguments: str) -> Child:
        """Run `python -m arguments` in a new session, so that Ctrl-C reaches only this process."""
        log = self.log_directory / f"{name.replace(' ', '-')}.log" if self.log_directory else None
        output = log.open("wb") if log else None
        popen = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env=os.environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,
        )
        if output:
            output.close()
        child = Child(name=name, popen=popen, log=log)
        self.children.append(child)
        return child

    def check(self) -> None:
        """Raise DemoError if a child has ended unexpectedly."""
        for child in self.children:
            if not child.is_running:
                code = child.popen.returncode
                raise DemoError(f"The {child.name} ended with {code}.\n{child.tail()}")

    def forget(self, child: Child) -> None:
        """Stop watching a child whose end is expected."""
        self.children.remove(child)

    def wait_until(
        self, condition: Callable[[], bool], *, what: str, seconds: float = 120, every: float = 0.1
    ) -> None:
        """Wait for the condition; raise DemoError if a child ends or after `seconds`."""
        deadline = monotonic() + seconds
        while not condition():
            self.check()
            if monotonic() > deadline:
                tails = "\n".join(child.tail() for child in self.children)
                raise DemoError(f"Timed out after {seconds:.0f} s of waiting for {what}.\n{tails}")
            Event().wait(every)


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGINT, even if the shell ignores SIGINT."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
