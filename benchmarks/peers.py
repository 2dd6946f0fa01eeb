"""How fast do others drain no-op jobs on SQLite? Each in a virtual environment of its own."""

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from benchmarks.measure import Row
from benchmarks.worker import drain
from django_mqlite.models import Queue

ROUNDS = int(os.environ.get("MQLITE_BENCHMARK_ROUNDS", "3"))
SCRIPTS = Path(__file__).with_name("peer_scripts")
ENVIRONMENTS = Path(gettempdir()) / "mqlite-benchmark-peers"
LEVELS = ("default", "tuned")
PATIENCE = 300.0
"""Seconds for one of them to drain its jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A package, and the script of its own that enqueues, drains and prints jobs a second."""

    name: str
    script: str
    packages: tuple[str, ...]
    jobs: int
    said: str
    """What to know of the comparison: what it cannot do, or does otherwise."""

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.script / "bin" / "python"


PEERS = (
    Peer(
        name="Huey, SqliteHuey, 8 threads",
        script="huey_sqlite",
        packages=("huey",),
        jobs=3_000,
        said="deletes a job before it runs: one whose worker dies is lost",
    ),
    Peer(
        name="litequeue, one loop of pop and done",
        script="litequeue_loop",
        packages=("litequeue",),
        jobs=3_000,
        said="no worker, no retries; no level can be set",
    ),
    Peer(
        name="simplebroker, read_generator",
        script="simplebroker_generator",
        packages=("simplebroker",),
        jobs=3_000,
        said="no leases, no retries; tuned: at_least_once, in batches",
    ),
    Peer(
        name="django-tasks-db, db_worker",
        script="django_tasks_db_worker",
        packages=("django-tasks-db", "django-tasks", "Django~=5.2.0"),
        jobs=300,
        said="no leases, no retries; keeps each result",
    ),
    Peer(
        name="django-q2, ORM broker, 1 worker",
        script="django_q2_orm",
        packages=("django-q2", "Django~=5.2.0"),
        jobs=300,
        said="keeps each result; a job is given again only after its retry time",
    ),
)


def run() -> list[Row]:
    Queue.objects.create_queue("noop")
    refused = {peer: prepare(peer) for peer in PEERS}
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for level, synchronous in zip(LEVELS, ("FULL", "NORMAL"), strict=True):
            rates.setdefault(("", level), []).append(drain(1, 8, synchronous)[0])
            for peer in PEERS:
                if refused[peer]:
                    continue
                try:
                    rates.setdefault((peer.script, level), []).append(measure(peer, level))
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(error, file=sys.stderr)
                    refused[peer] = "failed here"
    ours = row("django-mqlite, 1 × 8, at FULL; at NORMAL", "leases, retries, receipts", "", rates)
    return [ours, *(row(p.name, refused[p] or p.said, p.script, rates) for p in PEERS)]


def row(name: str, said: str, script: str, rates: dict[tuple[str, str], list[float]]) -> Row:
    found = {
        f"{level}, jobs/s": round(statistics.median(rates[script, level]))
        if (script, level) in rates
        else "–"
        for level in LEVELS
    }
    return {"name": name, **found, "to know": said}


def prepare(peer: Peer) -> str:
    """Make its virtual environment if there is none yet; why it cannot be measured, else ''."""
    if peer.python.exists():
        return ""
    home = peer.python.parent.parent
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    install = [peer.python, "-m", "pip", "install", "--quiet", *peer.packages]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        peer.python.unlink()
        return "could not be installed here"
    return ""


def measure(peer: Peer, level: str) -> float:
    """Jobs a second, as its script says on its last line."""
    with TemporaryDirectory(prefix="mqlite-benchmark-peer-") as directory:
        command = [peer.python, SCRIPTS / f"{peer.script}.py", directory, str(peer.jobs), level]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DJANGO_")}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env=environment,
        )
    if done.returncode:
        raise RuntimeError(f"{peer.script} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])
