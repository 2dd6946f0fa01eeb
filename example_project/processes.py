"""The shop's processes: started together, watched, and always ended."""

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
LINES_OF_TAIL = 30


class Trouble(Exception):
    """Something did not go as it must; the text is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process of ours. Its output goes to `log`, or to our own output if there is none."""

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
        lines = self.output().splitlines()[-LINES_OF_TAIL:]
        return "\n".join([f"--- the end of the output of {self.name}", *lines])


@dataclass(slots=True)
class Processes:
    """Starts children and, as a context manager, ends those that are still there."""

    log_directory: Path | None = None
    children: list[Child] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            if child.is_running:
                child.popen.send_signal(signal.SIGCONT)  # one that is stopped could not end
                child.popen.terminate()
        for child in self.children:
            try:
                child.popen.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.popen.kill()
                child.popen.wait()

    def start(self, name: str, *arguments: str) -> Child:
        """Run `python -m arguments`, in a session of its own: Ctrl-C is for us to pass on."""
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
        """Raise Trouble if a child has ended that should be at work."""
        for child in self.children:
            if not child.is_running:
                code = child.popen.returncode
                raise Trouble(f"The {child.name} ended with {code}.\n{child.tail()}")

    def forget(self, child: Child) -> None:
        """Its end is known and wanted."""
        self.children.remove(child)

    def wait_until(
        self, condition: Callable[[], bool], *, what: str, seconds: float = 120, every: float = 0.1
    ) -> None:
        """Ask until the condition holds; Trouble if a child ends or `seconds` go by before."""
        deadline = monotonic() + seconds
        while not condition():
            self.check()
            if monotonic() > deadline:
                tails = "\n".join(child.tail() for child in self.children)
                raise Trouble(f"Waited {seconds:.0f} s in vain for {what}.\n{tails}")
            Event().wait(every)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGINT raise KeyboardInterrupt, also where a shell has INT ignored."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    old = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
