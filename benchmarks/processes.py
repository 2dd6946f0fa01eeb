"""Real workers on the benchmark's database."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from threading import Event
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def running_worker(*arguments: str, quiet: bool = True) -> Iterator[Popen[str]]:
    """Run `manage.py runworker` with these arguments; terminate it after the block."""
    with Popen(
        [sys.executable, "-m", "django", "runworker", "--skip-checks", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if quiet else subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            yield worker
        finally:
            worker.terminate()
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()


def writers(processes: int, seconds: float) -> list[dict[str, Any]]:
    """Run writers at the same time; return their `waits` (ms) and `errors`."""
    with ExitStack() as stack:
        started = [stack.enter_context(started_writer(seconds)) for _ in range(processes)]
        for writer in started:
            if writer.stdout.readline() != "ready\n":
                raise RuntimeError("a writer did not start")
        for writer in started:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        return [json.loads(writer.stdout.readline()) for writer in started]


def started_writer(seconds: float) -> Popen[str]:
    return Popen(
        [sys.executable, "-m", "benchmarks.writer", str(seconds)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], T], worker: Popen[str] | None = None) -> T:
    """Return the first true result; raise RuntimeError after a timeout or if the worker ends."""
    deadline = time.monotonic() + 120
    while not (result := condition()):
        has_ended = worker is not None and worker.poll() is not None
        if has_ended or time.monotonic() > deadline:
            raise RuntimeError("the worker has ended or timed out")
        Event().wait(0.002)
    return result
