"""How fast do other packages drain no-op jobs on SQLite, each in its own virtual environment?"""

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
"""The package's own settings, then tuned settings at a level of `synchronous`, if possible."""
TIMEOUT = 120.0
"""Seconds that a peer has to drain its jobs."""
LOOP = 25_600
"""Messages drained by the loop of claim and complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Jobs per second, 0 after a failure, and the number of "database is locked" errors."""

    rate: float
    locked: int = 0


@dataclass(slots=True, kw_only=True)
class Contender:
    """A measured package with its results."""

    name: str
    drain: Callable[[str], Drained]
    note: str = "leases, retries, receipts"
    version: str = ""
    levels: set[str] = field(default_factory=lambda: set(LEVELS))
    """The levels that can be set."""
    rates: dict[str, list[float]] = field(default_factory=dict)
    locked: int = 0

    def measure(self, level: str) -> None:
        """Measure one round, unless the level cannot be set or failed before."""
        rates = self.rates.get(level, [])
        if level not in self.levels or 0.0 in rates:
            return
        drained = self.drain(level)
        self.rates[level] = [*rates, drained.rate]
        self.locked += drained.locked

    def row(self) -> Row:
        locked = f"; {self.locked} × “database is locked”" if self.locked else ""
        cells = {f"{level}, jobs/s": self._cell(level) for level in LEVELS}
        return {"name": self.name, "version": self.version, **cells, "notes": self.note + locked}

    def _cell(self, level: str) -> str:
        """Return the median and the spread."""
        rates = self.rates.get(level)
        if not rates:
            return "–"
        if 0.0 in rates:
            return "failed"
        return f"{statistics.median(rates):.0f} ({spread(rates)})"


def run() -> list[Row]:
    for name in ("noop", "claim"):
        Queue.objects.create_queue(name)
    contenders = [*own_contenders(), *map(peer_contender, PEERS)]
    for _ in range(ROUNDS):
        for level in LEVELS:
            for contender in contenders:
                contender.measure(level)
    return [contender.row() for contender in contenders]


def own_contenders() -> list[Contender]:
    drains = {
        "runworker, 8 threads": partial(worker, 8),
        "runworker, 64 threads": partial(worker, 64),
        "a loop of claim(limit=64) and complete_many()": loop,
    }
    version = versions(sys.executable, "django-mqlite")
    return [
        Contender(name=f"django-mqlite, {name}", drain=drain, version=version)
        for name, drain in drains.items()
    ]


def peer_contender(peer: Peer) -> Contender:
    """Install a peer and return its contender; after a failure, it has the reason and no level."""
    contender = Contender(name=peer.name, drain=partial(drain_peer, peer), note=peer.note)
    if reason := prepare(peer):
        contender.note, contender.levels = reason, set()
    else:
        contender.version = versions(peer.python, peer.packages[0])
        contender.levels = {level for level, jobs in zip(LEVELS, peer.jobs, strict=True) if jobs}
    return contender


def worker(threads: int, level: str) -> Drained:
    """Drain with a real `runworker`; FULL is the default."""
    return Drained(rate=drain(1, threads, "FULL" if level == "default" else level)[0])


def loop(level: str) -> Drained:
    fill(LOOP)
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA synchronous = {'FULL' if level == 'default' else level}")
        started = time.perf_counter()
        done = sum(iter(partial(claim_and_complete, 64), 0))
        spent = time.perf_counter() - started
        cursor.execute("PRAGMA synchronous = FULL")
    return Drained(rate=done / spent)


def drain_peer(peer: Peer, level: str) -> Drained:
    """Run the peer's script, which prints the rate last and its worker's log to standard error."""
    jobs = peer.jobs[LEVELS.index(level)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DJANGO_")}
    with TemporaryDirectory(prefix="mqlite-benchmark-peer-") as directory:
        command = [peer.python, SCRIPTS / f"{peer.script}.py", directory, str(jobs), level]
        try:
            done = run_and_kill_children(command, environment)
        except subprocess.TimeoutExpired:
            print(f"{peer.script} at {level} took too long", file=sys.stderr)
            return Drained(rate=0.0)
    locked = done.stderr.count("sqlite3.OperationalError: database is locked")
    if done.returncode:
        print(f"{peer.script} at {level} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return Drained(rate=0.0, locked=locked)
    return Drained(rate=float(done.stdout.splitlines()[-1]), locked=locked)


def run_and_kill_children(
    command: list[str | Path], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output; kill all processes that it has started."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as script:
        try:
            output, log = script.communicate(timeout=TIMEOUT)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, script.returncode, output, log)
