"""The terminal, the time zone, and the workers that the commands see."""

import io
from types import SimpleNamespace

import pytest

from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.workers import register

from .calls import Terminal


@pytest.fixture(autouse=True)
def shell(monkeypatch, settings):
    """Stdin is not a terminal, and times are shown in UTC."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    settings.TIME_ZONE = "UTC"


@pytest.fixture
def reply(monkeypatch, shell):
    """Make stdin a terminal with the user's reply; `meanwhile` runs while the user thinks."""

    class Stdin(Terminal):
        def readline(self, *arguments):
            self.meanwhile()
            return super().readline(*arguments)

    def set_reply(text, meanwhile=lambda: None):
        stdin = Stdin(text)
        stdin.meanwhile = meanwhile
        monkeypatch.setattr("sys.stdin", stdin)

    return set_reply


@pytest.fixture
def start_worker(db):
    """Register a live worker of queues; without any it is a reaper."""

    def start(*queues):
        record = WorkerRecord(
            worker=f"serves {queues}", host="host", boot_id="boot", pid_namespace=1, pid=1,
            process_started_at=0.0, queues=queues, slots=1, in_flight=0, started_at=0,
        )  # fmt: skip
        register("default", record)

    return start


@pytest.fixture
def healthy_machine(monkeypatch):
    """SQLite has no known bug and the disk has space, wherever the tests run."""
    from django.db import connection  # noqa: PLC0415 - nothing before the apps are ready

    from django_mqlite import doctor  # noqa: PLC0415

    monkeypatch.setattr(connection.Database, "sqlite_version_info", (3, 53, 0))
    monkeypatch.setattr(doctor, "has_wal_reset_bug", lambda version: False)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**15))
