"""How fast do others drain no-op jobs on SQLite? Each in a virtual environment of its own."""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from django.db import connection

from benchmarks.claim_complete import claim_and_complete, fill
from benchmarks.measure import Row, spread
from benchmarks.peer_packages import PEERS, SCRIPTS, Peer, prepare, versions
from benchmarks.worker import drain
from django_mqlite.models import Queue

ROUNDS = int(os.environ.get("MQLITE_BENCHMARK_ROUNDS", "3"))
LEVELS = ("default", "FULL", "NORMAL")
"""Its own settings; then ours at that level of `synchronous`, as far as they can be set."""
PATIENCE = 120.0
"""Seconds for one of them to drain its jobs."""
LOOP = 25_600
"""Messages of a loop of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Jobs a second, 0 if it did not drain them, and how often it met "database is locked"."""

    rate: float
    locked: int = 0


@dataclass(slots=True, kw_only=True)
class Contender:
    """One that is measured, and what was measured of it."""

    name: str
    drain: Callable[[str], Drained]
    said: str = "leases, retries, receipts"
    version: str = ""
    levels: set[str] = field(default_factory=lambda: set(LEVELS))
    """Those that can be set."""
    rates: dict[str, list[float]] = field(default_factory=dict)
    locked: int = 0

    def measure(self, level: str) -> None:
        """Once more, unless it cannot, or could not the last time."""
        rates = self.rates.get(level, [])
        if level not in self.levels or 0.0 in rates:
            return
        drained = self.drain(level)
        self.rates[level] = [*rates, drained.rate]
        self.locked += drained.locked

    def row(self) -> Row:
        locked = f"; {self.locked} × “database is locked”" if self.locked else ""
        cells = {f"{level}, jobs/s": self._cell(level) for level in LEVELS}
        return {"name": self.name, "version": self.version, **cells, "to know": self.said + locked}

    def _cell(self, level: str) -> str:
        """The median and the spread."""
        rates = self.rates.get(level)
        if not rates:
            return "–"
        if 0.0 in rates:
            return "failed"
        return f"{statistics.median(rates):.0f} ({spread(rates)})"


def run() -> list[Row]:
    for name in ("noop", "claim"):
        Queue.objects.create_queue(name)
    contenders = [*ours(), *map(theirs, PEERS)]
    for _ in range(ROUNDS):
        for level in LEVELS:
            for contender in contenders:
                contender.measure(level)
    return [contender.row() for contender in contenders]


def ours() -> list[Contender]:
    drains = {
        "runworker, 8 threads": partial(worker, 8),
        "runworker, 64 threads": partial(worker, 64),
        "a loop of claim(limit=64) and complete_many()": loop,
    }
    version = versions(sys.executable, "django-mqlite")
    return [
        Contender(name=f"django-mqlite, {name}", drain=one, version=version)
        for name, one in drains.items()
    ]


def theirs(peer: Peer) -> Contender:
    """Installed if it can be; else with the reason, and no level."""
    contender = Contender(name=peer.name, drain=partial(drain_peer, peer), said=peer.said)
    if refusal := prepare(peer):
        contender.said, contender.levels = refusal, set()
    else:
        contender.version = versions(peer.python, peer.packages[0])
        contender.levels = {level for level, jobs in zip(LEVELS, peer.jobs, strict=True) if jobs}
    return contender


def worker(threads: int, level: str) -> Drained:
    """A real `runworker`; FULL is the default."""
    return Drained(rate=drain(1, threads, "FULL" if level == "default" else level)[0])


def loop(level: str) -> Drained:
    fill(LOOP)
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA synchronous = {'FULL' if level == 'default' else level}")
        began = time.perf_counter()
        done = sum(iter(partial(claim_and_complete, 64), 0))
        spent = time.perf_counter() - began
        cursor.execute("PRAGMA synchronous = FULL")
    return Drained(rate=done / spent)


def drain_peer(peer: Peer, level: str) -> Drained:
    """What its script says on its last line; it gives its worker's log to standard error."""
    jobs = peer.jobs[LEVELS.index(level)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DJANGO_")}
    with TemporaryDirectory(prefix="mqlite-benchmark-peer-") as directory:
        command = [peer.python, SCRIPTS / f"{peer.script}.py", directory, str(jobs), level]
        try:
            done = run_with_its_workers(command, environment)
        except subprocess.TimeoutExpired:
            print(f"{peer.script} at {level} took too long", file=sys.stderr)
            return Drained(rate=0.0)
    locked = done.stderr.count("sqlite3.OperationalError: database is locked")
    if done.returncode:
        print(f"{peer.script} at {level} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return Drained(rate=0.0, locked=locked)
    return Drained(rate=float(done.stdout.splitlines()[-1]), locked=locked)


def run_with_its_workers(
    command: list[str | Path], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """What it has printed. Whatever it has started ends with it, or it would disturb the others."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as script:
        try:
            output, log = script.communicate(timeout=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, script.returncode, output, log)
