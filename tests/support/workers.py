"""Real `runworker` processes on a database file, and the test's view of that file.

The test process opens the file only with connections, never with open(): closing a descriptor
would drop the locks that its connections hold.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import connections

from django_mqlite import timing
from django_mqlite.models import DeadLetter, Message, Queue
from tests.support.source import ROOT
from tests.support.waiting import PATIENCE, wait_until

SETTINGS = "tests.support.worker_settings"
ALIAS = "worker"


class WorkerRouter:
    """Route everything to the workers' database."""

    def db_for_read(self, model: type, **hints: Any) -> str:
        return ALIAS

    db_for_write = db_for_read


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A process that runs a command of the project; its output goes to `log`."""

    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def children(self) -> list[psutil.Process]:
        """The processes that work, without the one in which multiprocessing tracks resources."""
        children = psutil.Process(self.pid).children()
        return [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]

    def wait_ready(self, starts: int = 1) -> "Worker":
        """Wait until it, or so many processes of it, can claim."""
        wait_until(
            lambda: self.output.count(" serves ") >= starts or self._ended(), "the worker to start"
        )
        assert not self._ended(), self.output
        return self

    def wait_said(self, text: str, count: int = 1) -> None:
        """Wait until its output has the text."""
        wait_until(lambda: self.output.count(text) >= count, f"the worker to log {text!r}")

    def wait_looks(self, count: int) -> None:
        """Wait until its main thread has slept so many times more."""
        process = psutil.Process(self.pid)
        before = process.num_ctx_switches().voluntary
        wait_until(
            lambda: process.num_ctx_switches().voluntary >= before + count,
            f"the worker to poll {count} times",
        )

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        """Terminate it; fail unless it exits with 0 and without a traceback."""
        self.terminate()
        assert self.ended_well()

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.popen.wait(PATIENCE)

    def exit_code(self, *, seconds: float = PATIENCE) -> int:
        """Wait for its end and return the exit code; fail if it does not end."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the worker still runs after {seconds:g} s: {self.output}"
            ) from None

    def ended_well(self) -> bool:
        """Return True if it exits with 0 and without a traceback; fail with its output if not."""
        assert self.exit_code() == 0, self.output
        assert "Traceback" not in self.output, self.output
        return True

    def _ended(self) -> bool:
        return self.popen.poll() is not None


@dataclass(kw_only=True)
class WorkerDatabase:
    """A database file with queues, its workers, and a directory for other files."""

    path: Path
    beside: Path
    workers: list[Worker] = field(default_factory=list)

    def file(self, name: str) -> str:
        """Return a path for handlers to write to or to wait for."""
        return str(self.beside / name)

    # Messages

    def queue(self, name: str, **options: Any) -> Queue:
        """Create the queue, or replace its options."""
        return Queue.objects.db_manager(ALIAS).create_queue(name, **options)

    def enqueue(self, queue: str, data: Any = None, **options: Any) -> Message:
        steps = {} if data is None else data
        return Message.objects.db_manager(ALIAS).enqueue(queue, steps, **options)

    def enqueue_waiting(self, queue: str = "jobs", **steps: Any) -> Message:
        """Enqueue a message whose handler writes `started` and waits for `go_on()`."""
        waiting = {"started": self.file("started"), "wait_for": self.file("go-on")}
        return self.enqueue(queue, {**waiting, **steps})

    def wait_started(self, delivery: int = 1) -> Path:
        """Wait until a handler has written that it runs; return the file with its pid."""
        started = self.beside / f"started.{delivery}"
        wait_until(started.exists, "the handler to start")
        return started

    def go_on(self) -> None:
        """Let handlers of waiting messages end."""
        self.beside.joinpath("go-on").touch()

    def wait_state(self, message: Message, state: str, **options: Any) -> None:
        wait_until(lambda: self.state(message) == state, f"the message to be {state}", **options)

    def wait_gone(self, *messages: Message, **options: Any) -> None:
        """Wait until the messages have been completed."""
        for message in messages:
            self.wait_state(message, "gone", **options)

    def wait_empty(self, **options: Any) -> None:
        wait_until(lambda: self.left() == 0, "every message to be finished", **options)

    def enqueue_many(self, queue: str, count: int, data: Any = None) -> list[int]:
        """Enqueue messages in one transaction; return their ids."""
        with self.transaction():
            return [self.enqueue(queue, data).pk for _ in range(count)]

    def claim(self, queue: str, **options: Any) -> list[Message]:
        return Message.objects.db_manager(ALIAS).claim(queue, **options)

    def expire_leases(self) -> None:
        """End the time of all leases, so that nothing has to wait for it."""
        with self.other_program() as other:
            other.execute(
                "UPDATE mqlite_messages SET locked_until = ? WHERE state = 'locked'",
                [timing.now_ms()],
            )

    def row(self, message: Message) -> dict[str, Any] | None:
        """Return the message's columns as Python values, or None if it is gone."""
        return Message.objects.using(ALIAS).filter(pk=message.pk).values().first()

    def state(self, message: Message) -> str:
        row = self.row(message)
        return row["state"] if row else "gone"

    def left(self) -> int:
        """Count the messages that are neither completed nor dead letters."""
        unfinished = "SELECT count(*) FROM mqlite_messages WHERE state NOT IN {}"
        return self.scalar(unfinished.format("('completed', 'dead_lettered')"))

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters, the oldest first."""
        dead = DeadLetter.objects.using(ALIAS).filter(state="dead_lettered")
        return list(dead.order_by("finished_at", "pk"))

    def effects(self) -> list[tuple[int, int, str]]:
        """Return message, delivery count and worker of each effect, in order."""
        return self.rows(
            "SELECT message, delivery_count, worker FROM worker_app_effect ORDER BY id"
        )

    def handled(self) -> list[int]:
        return [message for message, _, _ in self.effects()]

    def deliveries(self) -> list[int]:
        """Return the delivery count of each effect, in order."""
        return [delivery for _, delivery, _ in self.effects()]

    def registered(self) -> int:
        """Count the entries of workers."""
        return self.scalar("SELECT count(*) FROM mqlite_meta WHERE key LIKE 'worker:%'")

    def wait_registered(self, count: int) -> None:
        wait_until(lambda: self.registered() == count, f"{count} registered workers")

    # The file

    def close(self) -> None:
        """Close the connection; the next query opens it again."""
        connections[ALIAS].close()

    def rows(self, sql: str) -> list[tuple]:
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def scalar(self, sql: str) -> Any:
        return self.rows(sql)[0][0]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        from django.db import transaction  # noqa: PLC0415 - beside the method of that name

        with transaction.atomic(using=ALIAS):
            yield

    @contextmanager
    def other_program(self) -> Iterator[sqlite3.Connection]:
        """Open a connection as other programs do, without Django."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=30)) as connection:
            yield connection

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the write lock as another program."""
        with self.other_program() as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    def freeze(self, worker: Worker) -> None:
        """Stop the worker with SIGSTOP, but not while it holds the write lock."""
        process = psutil.Process(worker.pid)
        while True:
            worker.signal(signal.SIGSTOP)
            wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "the worker to freeze")
            if self._is_free():
                return
            worker.signal(signal.SIGCONT)

    def _is_free(self) -> bool:
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=0)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    def is_sound(self) -> bool:
        """Return True if SQLite finds the file complete and consistent."""
        return self.rows("PRAGMA integrity_check") == [("ok",)]

    # Processes

    def start(self, *arguments: str, **options: Any) -> Worker:
        """Start `manage.py runworker` with these arguments."""
        return self.run("runworker", *arguments, **options)

    def run(self, *command: str, launcher: str = "", **environment: str) -> Worker:
        """Start `manage.py` with this command, by a launcher of tests/support/launchers.py."""
        launch = ("-m", "tests.support.launchers", launcher) if launcher else ()
        log = self.beside / f"process-{len(self.workers)}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, *launch, "-m", "django", *command],
                cwd=ROOT,
                env={**os.environ, **self.environment(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        worker = Worker(popen=popen, log=log)
        self.workers.append(worker)
        return worker

    def environment(self) -> dict[str, str]:
        return {"DJANGO_SETTINGS_MODULE": SETTINGS, "MQLITE_TEST_DATABASE": str(self.path)}

    def end_workers(self) -> None:
        for worker in self.workers:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(worker.pid).children():
                    child.kill()
            worker.kill()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with every table, to be copied; made once per test process."""
    path = tmp_path_factory.mktemp("migrated") / "queue.sqlite3"
    database = WorkerDatabase(path=path, beside=path.parent)
    migrated = database.run("migrate", "--run-syncdb", "--verbosity=0")
    assert migrated.exit_code() == 0, migrated.output
    return path


@pytest.fixture
def database(tmp_path, migrated_file, django_db_blocker) -> Iterator[WorkerDatabase]:
    """A database at the alias `worker`, whose processes end with the test."""
    directory = tmp_path / "database"
    directory.mkdir()
    path = Path(shutil.copy(migrated_file, directory / "queue.sqlite3"))
    database = WorkerDatabase(path=path, beside=tmp_path)
    connections.settings[ALIAS] = {**connections.settings["default"], "NAME": str(path)}
    with django_db_blocker.unblock():
        try:
            yield database
        finally:
            database.end_workers()
            database.close()
            del connections[ALIAS]
            del connections.settings[ALIAS]


@pytest.fixture
def busy(database) -> Callable[..., tuple[Worker, Message]]:
    """Start a worker with one thread, and wait until it runs a handler that waits for `go_on()`."""

    def start(
        *arguments: str, queue: str = "jobs", steps: Any = None, lease: float = 0, **options: Any
    ) -> tuple[Worker, Message]:
        if lease:
            database.queue(queue, lock_duration=lease)
        message = database.enqueue_waiting(queue, **(steps or {}))
        worker = database.start("--threads=1", *arguments, **options)
        database.wait_started()
        return worker, message

    return start


@pytest.fixture
def busy_processes(database) -> Callable[..., tuple[Worker, dict[int, Message]]]:
    """Start a worker of so many processes, each in a handler that waits for `go_on()`.

    Returns it with the messages by the pid of the process that handles them.
    """

    def start(
        processes: int, *arguments: str, queue: str = "jobs", **options: Any
    ) -> tuple[Worker, dict[int, Message]]:
        names = [f"started-{number}" for number in range(processes)]
        messages = [database.enqueue_waiting(queue, started=database.file(name)) for name in names]
        worker = database.start(f"--processes={processes}", "--threads=1", *arguments, **options)
        files = [database.beside / f"{name}.1" for name in names]
        wait_until(
            lambda: all(file.exists() and file.read_text() for file in files),
            "the handlers to start",
        )
        pids = [int(file.read_text()) for file in files]
        assert len(set(pids)) == processes
        return worker, dict(zip(pids, messages, strict=True))

    return start


def wait_all_gone(processes: list[psutil.Process]) -> None:
    wait_until(lambda: not any(process.is_running() for process in processes), "them to be gone")
