"""Diagnosis of a database: the health of its queues, the system checks and the file. Reads only.

This module is above the verbs, because a diagnosis includes the system checks.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.checks import run_checks

from .checks import checking
from .sqlite3.driver import has_wal_reset_bug
from .verbs.database_file import Storage, find_damage, storage, unused_bytes
from .verbs.health import (
    FAILING,
    LATE,
    OVERDUE,
    STUCK,
    UNSERVED,
    Health,
    health,
    wal_problems,
)

FREE_PAGES_RATIO = 0.25
LARGE_FILE = 64 * 1024 * 1024
"""Bytes: free pages of a smaller file are not worth a warning."""


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
    paused_schedules: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """True unless a finding is an error; warnings are advice."""
        return not any(finding.level == "error" for finding in self.findings)


def diagnose(using: str, *, thorough: bool = True) -> Diagnosis:
    """Return all findings. `thorough` reads the whole file to find damage and unused bytes."""
    file = storage(using)
    current = health(using)
    findings = [
        *_check_findings(using),
        *(_damage_findings(using) if thorough else ()),
        *_wal_findings(file),
        *_page_findings(file),
        *_disk_findings(file),
        *_health_findings(current),
    ]
    return Diagnosis(
        findings=tuple(sorted(findings, key=lambda finding: finding.level)),
        storage=file,
        has_wal_reset_bug=has_wal_reset_bug(_version(file.sqlite_version)),
        unused=unused_bytes(using) if thorough else None,
        checked=thorough,
        paused_schedules=current.paused_schedules,
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
    for problem in wal_problems(file.wal_size):
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


ADVICE = {
    UNSERVED: "Start `manage.py runworker`.",
    LATE: "Check why its handlers are slow, or start more workers.",
    STUCK: "Read `manage.py mqlite why` about the message that the others wait for; run it now, "
    "activate it or discard it.",
    OVERDUE: "Start `manage.py runworker` or `manage.py runreaper` with the current code.",
    FAILING: "Correct the schedule or its task; `manage.py mqlite schedules NAME` shows it.",
}
"""The advice for each problem of a queue or a schedule."""


def _health_findings(current: Health) -> Iterator[Finding]:
    queues, schedules = current.queue_problems, current.schedule_problems
    problems = [(problem.code, problem.text) for problem in queues]
    problems += [(problem.code, problem.text) for problem in schedules]
    for code, text in problems:
        yield Finding(level="warning", id="unhealthy", text=text, advice=ADVICE[code])


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
        "paused_schedules": list(diagnosis.paused_schedules),
    }
