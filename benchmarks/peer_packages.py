"""The peers: their packages, notes on the comparison, and their virtual environments."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

SCRIPTS = Path(__file__).with_name("peer_scripts")
ENVIRONMENTS = Path(gettempdir()) / "mqlite-benchmark-peers"

# Prints the versions of the given package, of Django if installed, and of Python.
PRINT_VERSIONS = """
import platform, sys
from importlib.metadata import packages_distributions, version
django = [f"Django {version('django')}"] if "django" in packages_distributions() else []
print(", ".join([version(sys.argv[1]), *django, f"Python {platform.python_version()}"]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A package, with a script that enqueues and drains jobs and prints jobs per second."""

    name: str
    script: str
    packages: tuple[str, ...]
    jobs: tuple[int, int, int]
    """Jobs at each level, enough for a few seconds; 0 if the level cannot be set."""
    note: str
    """Differences that matter for the comparison."""
    min_python: tuple[int, int] = (3, 11)
    """The minimum version of Python."""

    @property
    def home(self) -> Path:
        return ENVIRONMENTS / f"{self.script}-{self.min_python[0]}.{self.min_python[1]}"

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def installed(self) -> Path:
        """The file that lists the installed packages; it is written last."""
        return self.home / "installed"


PEERS = (
    Peer(
        name="Huey, SqliteHuey, 8 threads",
        script="huey_sqlite",
        packages=("huey",),
        jobs=(6_000, 6_000, 15_000),
        note="separate file; deletes a job before it runs, so a crash loses it",
    ),
    Peer(
        name="dj-queue, 1 worker process",
        script="dj_queue_runtime",
        packages=("dj-queue", "Django~=6.1.0"),
        jobs=(150, 1_000, 1_000),
        note="no automatic retries; jobs of a dead worker fail; keeps each result",
        min_python=(3, 12),
    ),
    Peer(
        name="django-ox, ox_worker",
        script="django_ox_worker",
        packages=("django-ox", "Django~=6.1.0"),
        jobs=(400, 400, 400),
        note="fenced leases that are renewed, retries; keeps each result",
        min_python=(3, 12),
    ),
    Peer(
        name="steady-queue, 1 worker process",
        script="steady_queue_supervisor",
        packages=("steady-queue", "Django~=6.1.0"),
        jobs=(300, 400, 400),
        note="no automatic retries; jobs of a dead worker fail; opens a connection for each job",
        min_python=(3, 12),
    ),
    Peer(
        name="django-tasks-db, db_worker",
        script="django_tasks_db_worker",
        packages=("django-tasks-db", "django-tasks", "Django~=5.2.0"),
        jobs=(500, 1_000, 1_500),
        note="no leases, no retries: a dead worker's task stays RUNNING; keeps each result",
    ),
    Peer(
        name="django-q2, ORM broker, 1 worker",
        script="django_q2_orm",
        packages=("django-q2", "Django~=5.2.0"),
        jobs=(200, 1_000, 1_500),
        note="no leases: a job is delivered again after its retry time; keeps each result",
    ),
    Peer(
        name="litequeue, a loop of pop and done",
        script="litequeue_loop",
        packages=("litequeue",),
        jobs=(10_000, 5_000, 10_000),
        note="separate file; no worker: the caller has to manage claims and retries",
        min_python=(3, 12),
    ),
    Peer(
        name="persist-queue, SQLiteAckQueue, a loop of get and ack",
        script="persistqueue_loop",
        packages=("persist-queue",),
        jobs=(4_000, 4_000, 8_000),
        note="separate file; no worker, no leases: opening the queue requeues jobs in progress",
    ),
    Peer(
        name="simplebroker, read_generator; tuned: 64 per commit",
        script="simplebroker_generator",
        packages=("simplebroker",),
        jobs=(5_000, 40_000, 40_000),
        note="separate file; no leases, no retries; at most once; tuned: at least once",
    ),
    Peer(
        name="honker, a loop of claim_batch and ack_batch of 64",
        script="honker_batches",
        packages=("honker",),
        jobs=(40_000, 0, 0),
        note="leases, retries; keeps dead jobs",
    ),
)


def prepare(peer: Peer) -> str:
    """Create its virtual environment if missing; return the reason for a failure, or ''.

    An incomplete environment, or one for other packages, is created again.
    """
    requirements = "\n".join(peer.packages)
    if peer.installed.exists() and peer.installed.read_text(encoding="utf-8") == requirements:
        return ""
    python = next(pythons(peer.min_python), None)
    if python is None:
        return f"needs Python {peer.min_python[0]}.{peer.min_python[1]}, which is not installed"
    for command in (
        [python, "-m", "venv", "--clear", peer.home],
        [peer.python, "-m", "pip", "install", "--quiet", *peer.packages],
    ):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            print(f"{peer.name}:\n{result.stderr[-2000:]}", file=sys.stderr)
            return "could not be installed"
    peer.installed.write_text(requirements, encoding="utf-8")
    return ""


def pythons(min_python: tuple[int, int]) -> Iterator[str]:
    """Yield interpreters of at least this version: the current one, in PATH, from pyenv."""
    if sys.version_info >= min_python:
        yield sys.executable
        return
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for minor in range(min_python[1], min_python[1] + 4):
        name = f"python{min_python[0]}.{minor}"
        for path in (shutil.which(name), *pyenv.glob(f"versions/*/bin/{name}")):
            if path and works(path):
                yield str(path)


def works(python: str | Path) -> bool:
    """Return False for a pyenv shim without a selected version."""
    return not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode


def versions(python: str | Path, package: str) -> str:
    """Return the versions of the package, of Django if installed, and of Python."""
    command = [python, "-c", PRINT_VERSIONS, package]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
