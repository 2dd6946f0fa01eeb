"""Diagnosis of a database: the health of its queues, the system checks and the file.

health() is quick and meant for monitoring systems; diagnose() runs every check. Both only read.
This module is above the verbs, because a diagnosis includes the system checks.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.checks import run_checks

from . import timing
from .checks import checking
from .models import Queue
from .sqlite3.driver import has_wal_reset_bug
from .types import QueueStats, WorkerRecord
from .verbs.database_file import Storage, find_damage, storage, unused_bytes, wal_bytes
from .verbs.workers import live_workers

LARGE_WAL = 128 * 1024 * 1024
"""Bytes: twice sqlite_options()'s `journal_size_limit`, to which checkpoints truncate the log."""

RESTART_MS = 15_000
"""How long due messages may have no worker, for example during a deployment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Facts for a monitoring system. Ages are in seconds, None without a due message or worker."""

    queue_problems: tuple[str, ...]
    oldest_due_age: float | None
    last_poll_age: float | None
    live_workers: int
    wal_bytes: int

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems of the queues, and a write-ahead log that is too large."""
        return (*self.queue_problems, *_wal_problems(self.wal_bytes))

    @property
    def healthy(self) -> bool:
        return not self.problems


def health(using: str, *, max_age_ms: int) -> Health:
    """Return the health of the queues and their file.

    Problems are: due messages that no worker serves, messages of any priority that have been due
    for longer than `max_age_ms`, and a large write-ahead log. Paused queues are
    ignored, because their messages are meant to wait.
    """
    now = timing.now_ms()
    workers = [worker for worker in live_workers(using) if worker.queues]
    ages = {
        queue.queue: now - queue.due_since_ms
        for queue in _active_queues(using)
        if queue.due_since_ms is not None
    }
    polls = [now - worker.seen_at for worker in workers]
    return Health(
        queue_problems=tuple(_queue_problems(ages, workers, max_age_ms=max_age_ms)),
        oldest_due_age=max(ages.values()) / 1000 if ages else None,
        last_poll_age=min(polls) / 1000 if polls else None,
        live_workers=len(workers),
        wal_bytes=wal_bytes(using),
    )


def _active_queues(using: str) -> list[QueueStats]:
    return [queue for queue in Queue.objects.db_manager(using).stats() if not queue.paused]


def _queue_problems(
    ages: dict[str, int], workers: list[WorkerRecord], *, max_age_ms: int
) -> Iterator[str]:
    for queue, age in ages.items():
        is_served = any(queue in worker.queues for worker in workers)
        if not is_served and age > min(max_age_ms, RESTART_MS):
            yield f"Queue {queue} has due messages, but no live worker serves it."
        elif age > max_age_ms:
            yield f"Queue {queue} has had a due message for {age / 1000:.0f} s."


def _wal_problems(size: int) -> Iterator[str]:
    if size > LARGE_WAL:
        yield f"The write-ahead log is {size:,} bytes long."


FREE_PAGES_RATIO = 0.25
LARGE_FILE = 64 * 1024 * 1024
"""Bytes: free pages of a smaller file are not worth a warning."""

MAX_DUE_AGE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem, with advice on how to solve it. `level` is "error" or "warning"."""

    level: str
    id: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The findings, errors first, and facts about the file."""

    findings: tuple[Finding, ...]
    storage: Storage
    has_wal_reset_bug: bool
    unused: int | None
    checked: bool

    @property
    def healthy(self) -> bool:
        """True unless a finding is an error; warnings are advice."""
        return not any(finding.level == "error" for finding in self.findings)


def diagnose(using: str, *, thorough: bool = True) -> Diagnosis:
    """Return all findings. `thorough` reads the whole file to find damage and unused bytes."""
    file = storage(using)
    findings = [
        *_check_findings(using),
        *(_damage_findings(using) if thorough else ()),
        *_wal_findings(file),
        *_page_findings(file),
        *_disk_findings(file),
        *_health_findings(using),
    ]
    return Diagnosis(
        findings=tuple(sorted(findings, key=lambda finding: finding.level)),
        storage=file,
        has_wal_reset_bug=has_wal_reset_bug(_version(file.sqlite_version)),
        unused=unused_bytes(using) if thorough else None,
        checked=thorough,
    )


def _version(text: str) -> tuple[int, int, int]:
    major, minor, patch = text.split(".")[:3]
    return int(major), int(minor), int(patch)


def _check_findings(using: str) -> Iterator[Finding]:
    """Run this app's system checks, except those that the project has silenced."""
    with checking(using):
        messages = run_checks(tags=["mqlite"], databases=[using])
    for message in messages:
        if not message.is_silenced():
            yield Finding(
                level="error" if message.is_serious() else "warning",
                id=str(message.id),
                text=str(message.msg),
                advice=str(message.hint or ""),
            )


def _damage_findings(using: str) -> Iterator[Finding]:
    for damage in find_damage(using):
        yield Finding(
            level="error",
            id="damaged",
            text=f"The file is damaged: {damage}",
            advice="Stop all workers and web processes, keep a copy of the file and its -wal, and "
            "restore the last backup. `sqlite3 FILE .recover` saves what can still be read.",
        )


def _wal_findings(file: Storage) -> Iterator[Finding]:
    for problem in _wal_problems(file.wal_size):
        yield Finding(
            level="warning",
            id="large_wal",
            text=problem,
            advice="A long read transaction prevents checkpoints: end long transactions and close "
            "unused shells.",
        )


def _page_findings(file: Storage) -> Iterator[Finding]:
    if file.size > LARGE_FILE and file.free > file.size * FREE_PAGES_RATIO:
        command = "`manage.py mqlite vacuum`"
        if not file.incremental:
            command = "`manage.py mqlite vacuum --full` (blocks writers)"
        yield Finding(
            level="warning",
            id="free_pages",
            text=f"{file.free:,} of {file.size:,} bytes are free pages.",
            advice=f"SQLite reuses them. If you need the disk space: {command}.",
        )


def _disk_findings(file: Storage) -> Iterator[Finding]:
    if file.path is None or not file.path.exists():
        return
    free = shutil.disk_usage(file.path.parent).free
    if free < file.size:
        yield Finding(
            level="warning",
            id="low_disk_space",
            text=f"The disk has {free:,} bytes left, less than the file's {file.size:,} bytes.",
            advice="Free disk space: a full disk makes every enqueue fail, and a backup or a full "
            "vacuum needs as much space as the file.",
        )


def _health_findings(using: str) -> Iterator[Finding]:
    for problem in health(using, max_age_ms=MAX_DUE_AGE_MS).queue_problems:
        yield Finding(
            level="warning",
            id="unhealthy",
            text=problem,
            advice="Start `manage.py runworker`, or check why its handlers are slow.",
        )


def facts(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the facts as JSON values; sizes are in bytes."""
    file = diagnosis.storage
    return {
        "path": None if file.path is None else str(file.path),
        "size": file.size,
        "free": file.free,
        "unused": diagnosis.unused,
        "wal_size": file.wal_size,
        "incremental_vacuum": file.incremental,
        "journal_mode": file.journal_mode,
        "synchronous": file.synchronous,
        "sqlite_version": file.sqlite_version,
        "sqlite_source": file.sqlite_source,
        "wal_reset_bug": diagnosis.has_wal_reset_bug,
        "integrity_checked": diagnosis.checked,
    }
