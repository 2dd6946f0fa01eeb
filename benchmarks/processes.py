"""Real workers on the benchmark's database."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def running_worker(*arguments: str, quiet: bool = True) -> Iterator[Popen[str]]:
    """`manage.py runworker` with these arguments; told to end when the block does."""
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
