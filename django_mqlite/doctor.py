"""Is everything in order? The system checks, the file, the queue's health, and what to do."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.checks import CheckMessage, run_checks

from .checks import checking
from .sqlite3.driver import has_wal_reset_bug
from .verbs.database_file import Storage, damages, storage, unused_bytes
from .verbs.health import health, wal_problem

MANY_FREE = 0.25
LARGE = 64 * 1024 * 1024
"""Bytes: below that free pages are not worth a word."""

DUE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not in order: "error" or "warning", what, and what to do about it."""

    level: str
    id: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What was found, the worst first, and the facts it was found from."""

    findings: tuple[Finding, ...]
    storage: Storage
    has_wal_reset_bug: bool
    unused: int | None
    checked: bool

    @property
    def healthy(self) -> bool:
        """Whether there is no error; warnings are advice."""
        return not any(finding.level == "error" for finding in self.findings)


def diagnose(using: str, *, thorough: bool = True) -> Diagnosis:
    """Look at everything. `thorough` reads the whole file, for damages and wasted room."""
    found = storage(using)
    findings = [
        *_of_checks(using),
        *(_of_damages(using) if thorough else ()),
        *_of_storage(found),
        *_of_health(using),
    ]
    return Diagnosis(
        findings=tuple(sorted(findings, key=lambda finding: finding.level)),
        storage=found,
        has_wal_reset_bug=has_wal_reset_bug(_version(found.sqlite_version)),
        unused=unused_bytes(using) if thorough else None,
        checked=thorough,
    )


def _version(text: str) -> tuple[int, int, int]:
    major, minor, patch = text.split(".")[:3]
    return int(major), int(minor), int(patch)


def _of_checks(using: str) -> Iterator[Finding]:
    """Ours alone; those that the project has silenced stay silent."""
    with checking(using):
        messages = run_checks(tags=["mqlite"], databases=[using])
    for message in messages:
        if not message.is_silenced():
            yield Finding(
                level="error" if message.is_serious() else "warning",
                id=str(message.id),
                text=str(message.msg),
                advice=_hint(message),
            )


def _hint(message: CheckMessage) -> str:
    return str(message.hint or "")


def _of_damages(using: str) -> Iterator[Finding]:
    for said in damages(using):
        yield Finding(
            level="error",
            id="damaged",
            text=f"The file is damaged: {said}",
            advice="Stop all workers and web processes, keep a copy of the file and its -wal, and "
            "restore the last backup; `sqlite3 FILE .recover` saves what can be read.",
        )


def _of_storage(found: Storage) -> Iterator[Finding]:
    if large := wal_problem(found.wal_size):
        yield Finding(
            level="warning",
            id="large_wal",
            text=_sentence(large),
            advice="Something reads for a long time and keeps it from being emptied: look for "
            "long transactions and forgotten shells.",
        )
    if found.size > LARGE and found.free > found.size * MANY_FREE:
        how = "vacuum" if found.incremental else "vacuum --full (stops writers meanwhile)"
        yield Finding(
            level="warning",
            id="free_pages",
            text=f"{found.free:,} of {found.size:,} bytes are free pages.",
            advice=f"They are used again. If the disk needs the room: `manage.py mqlite {how}`.",
        )
    yield from _of_disk(found)


def _sentence(problem: str) -> str:
    return f"{problem[0].upper()}{problem[1:]}."


def _of_disk(found: Storage) -> Iterator[Finding]:
    if found.path is None or not found.path.exists():
        return
    left = shutil.disk_usage(found.path.parent).free
    if left < found.size:
        yield Finding(
            level="warning",
            id="little_disk",
            text=f"The disk has {left:,} bytes left, less than the file's {found.size:,}.",
            advice="Free space: a full disk stops every enqueue, and a backup or a full vacuum "
            "needs as much room as the file.",
        )


def _of_health(using: str) -> Iterator[Finding]:
    for problem in health(using, max_age_ms=DUE_MS).queue_problems:
        yield Finding(
            level="warning",
            id="unhealthy",
            text=_sentence(problem),
            advice="Start `manage.py runworker`, or look what its handlers wait for.",
        )


def facts(found: Diagnosis) -> dict[str, Any]:
    """The facts, as JSON can hold them; sizes in bytes."""
    return {
        "path": None if found.storage.path is None else str(found.storage.path),
        "size": found.storage.size,
        "free": found.storage.free,
        "unused": found.unused,
        "wal_size": found.storage.wal_size,
        "incremental_vacuum": found.storage.incremental,
        "journal_mode": found.storage.journal_mode,
        "synchronous": found.storage.synchronous,
        "sqlite_version": found.storage.sqlite_version,
        "sqlite_source": found.storage.sqlite_source,
        "wal_reset_bug": found.has_wal_reset_bug,
        "integrity_checked": found.checked,
    }
