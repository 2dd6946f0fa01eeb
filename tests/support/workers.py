"""Real `runworker` processes on a database file of their own, and the test's view of that file.

The test process opens the file with connections only, never with open(): closing a descriptor of
it would drop the locks that its connections hold.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
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
    """Everything goes to the workers' database."""

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

    def wait_ready(self) -> "Worker":
        """Until it claims, or would."""
        wait_until(lambda: " serves " in self.output or self._ended(), "the worker to start")
        assert not self._ended(), self.output
        return self

    def wait_said(self, text: str) -> None:
        """Until its output has the text."""
        wait_until(lambda: text in self.output, f"the worker to say {text!r}")

    def wait_looks(self, count: int) -> None:
        """Until its main thread has gone to rest so many times more."""
        process = psutil.Process(self.pid)
        before = process.num_ctx_switches().voluntary
        wait_until(
            lambda: process.num_ctx_switches().voluntary >= before + count,
            f"the worker to look {count} times",
        )

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and it is gone when this returns."""
        self.signal(signal.SIGKILL)
        self.popen.wait(PATIENCE)

    def exit_code(self, *, seconds: float = PATIENCE) -> int:
        """Its exit code, once it has ended; fails if it does not."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {seconds:g} s: {self.output}") from None

    def ended_well(self) -> bool:
        """Whether it has come to its end as it should; an AssertionError with its output if not."""
        assert self.exit_code() == 0, self.output
        assert "Traceback" not in self.output, self.output
        return True

    def _ended(self) -> bool:
        return self.popen.poll() is not None


@dataclass(kw_only=True)
class WorkerDatabase:
    """A database file with queues, the workers on it, and a place for files beside it."""

    path: Path
    beside: Path
    workers: list[Worker] = field(default_factory=list)

    def file(self, name: str) -> str:
        """A path for handlers to write to or to wait for."""
        return str(self.beside / name)

    # Messages

    def queue(self, name: str, **options: Any) -> Queue:
        """Give the queue other options than those of the settings."""
        return Queue.objects.db_manager(ALIAS).create_queue(name, **options)

    def enqueue(self, queue: str, data: Any = None, **options: Any) -> Message:
        steps = {} if data is None else data
        return Message.objects.db_manager(ALIAS).enqueue(queue, steps, **options)

    def enqueue_many(self, queue: str, count: int, data: Any = None) -> list[int]:
        """In one transaction; their ids."""
        with self.transaction():
            return [self.enqueue(queue, data).pk for _ in range(count)]

    def claim(self, queue: str, **options: Any) -> list[Message]:
        return Message.objects.db_manager(ALIAS).claim(queue, **options)

    def expire_leases(self) -> None:
        """As if they had run out by now; nothing has to wait for them."""
        with self.other_program() as other:
            other.execute(
                "UPDATE mqlite_messages SET locked_until = ? WHERE state = 'locked'",
                [timing.now_ms()],
            )

    def row(self, message: Message) -> dict[str, Any] | None:
        """The message's columns as Python values, None if it is gone."""
        return Message.objects.using(ALIAS).filter(pk=message.pk).values().first()

    def state(self, message: Message) -> str:
        row = self.row(message)
        return row["state"] if row else "gone"

    def left(self) -> int:
        """How many messages are neither completed nor dead letters."""
        unfinished = "SELECT count(*) FROM mqlite_messages WHERE state NOT IN {}"
        return self.scalar(unfinished.format("('completed', 'dead_lettered')"))

    def dead_letters(self) -> list[DeadLetter]:
        """The oldest first."""
        dead = DeadLetter.objects.using(ALIAS).filter(state="dead_lettered")
        return list(dead.order_by("finished_at", "pk"))

    def effects(self) -> list[tuple[int, int, str]]:
        """Message, delivery count and worker of each time that work was done, in order."""
        return self.rows(
            "SELECT message, delivery_count, worker FROM worker_app_effect ORDER BY id"
        )

    def handled(self) -> list[int]:
        return [message for message, _, _ in self.effects()]

    # The file

    def close(self) -> None:
        """Let go of the file; the next question opens it again."""
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
        """A connection as any program would open it, without Django."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=30)) as connection:
            yield connection

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Another program holds the write lock."""
        with self.other_program() as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    def freeze(self, worker: Worker) -> None:
        """Stop it dead, but not while it has the write lock: nobody else could go on."""
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
        """Whether SQLite finds the file complete and consistent."""
        return self.rows("PRAGMA integrity_check") == [("ok",)]

    # Processes

    def start(self, *arguments: str, **options: Any) -> Worker:
        """`manage.py runworker` with these arguments."""
        return self.run("runworker", *arguments, **options)

    def run(self, *command: str, launcher: Sequence[str] = (), **environment: str) -> Worker:
        """`manage.py` with this command; a launcher is a program that becomes it."""
        log = self.beside / f"process-{len(self.workers)}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, *launcher, "-m", "django", *command],
                cwd=ROOT,
                env={**os.environ, **self._environment(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        worker = Worker(popen=popen, log=log)
        self.workers.append(worker)
        return worker

    def _environment(self) -> dict[str, str]:
        return {"DJANGO_SETTINGS_MODULE": SETTINGS, "MQLITE_TEST_DATABASE": str(self.path)}

    def end_workers(self) -> None:
        for worker in self.workers:
            worker.popen.kill()
            worker.popen.wait()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with every table, once per test process; to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "queue.sqlite3"
    database = WorkerDatabase(path=path, beside=path.parent)
    migrated = database.run("migrate", "--run-syncdb", "--verbosity=0")
    assert migrated.exit_code() == 0, migrated.output
    return path


@pytest.fixture
def database(tmp_path, migrated_file, django_db_blocker) -> Iterator[WorkerDatabase]:
    """A database of the test's own, at the alias `worker`; its processes end with the test."""
    directory = tmp_path / "database"
    directory.mkdir()
    path = Path(shutil.copy(migrated_file, directory / "queue.sqlite3"))
    found = WorkerDatabase(path=path, beside=tmp_path)
    connections.settings[ALIAS] = {**connections.settings["default"], "NAME": str(path)}
    with django_db_blocker.unblock():
        try:
            yield found
        finally:
            found.end_workers()
            found.close()
            del connections[ALIAS]
            del connections.settings[ALIAS]
