"""Commands that maintain the database file: health, doctor, backup and vacuum."""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from django_mqlite.checks import queue_alias
from django_mqlite.doctor import Diagnosis, diagnose, facts
from django_mqlite.formatting import format_duration
from django_mqlite.timing import milliseconds
from django_mqlite.verbs.database_file import back_up, storage, vacuum_fully, vacuum_incrementally
from django_mqlite.verbs.health import health

from .arguments import Options, Subcommand, add_yes, seconds
from .output import ERROR, SUCCESS, WARNING, Output, cell, lines

# health

HEALTH = (
    "healthy", "problems", "oldest_due_age", "last_poll_age", "live_workers", "wal_bytes",
    "retrying", "recent_dead_letters", "busy_queues", "paused_schedules",
)  # fmt: skip


def _add_health_arguments(parser: ArgumentParser) -> None:
    text = "report messages that have been due for longer than this (60s)"
    parser.add_argument("--max-age", type=seconds, default=60.0, metavar="AGE", help=text)


def _health(options: Options, output: Output) -> None:
    using = options["database"] or queue_alias()
    result = health(using, max_age_ms=milliseconds(options["max_age"], "--max-age"))
    document = {name: getattr(result, name) for name in HEALTH}
    text = [
        *(
            [output.colored(f"PROBLEM: {problem}", ERROR) for problem in result.problems]
            or [output.colored("healthy", SUCCESS)]
        ),
        f"oldest due message: {_ago(result.oldest_due_age)}",
        f"last poll of a worker: {_ago(result.last_poll_age)}",
        f"live workers: {result.live_workers}",
        f"queues whose workers are all busy: {', '.join(result.busy_queues) or 'none'}",
        f"paused schedules: {', '.join(result.paused_schedules) or 'none'}",
        f"retrying messages: {result.retrying:,}",
        f"dead letters in the last hour: {result.recent_dead_letters:,}",
        f"write-ahead log: {result.wal_bytes:,} bytes",
    ]
    output.answer(document, "\n".join(text), failed=not result.healthy)


def _ago(age: float | None) -> str:
    return "none" if age is None else f"{format_duration(round(age * 1000))} ago"


# doctor

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def _add_doctor_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="skip the integrity check of the file")


def _doctor(options: Options, output: Output) -> None:
    diagnosis = diagnose(options["database"] or queue_alias(), thorough=not options["quick"])
    document = {
        "healthy": diagnosis.healthy,
        "findings": [asdict(finding) for finding in diagnosis.findings],
        "facts": facts(diagnosis),
    }
    text = [*_findings(diagnosis, output), *_facts(diagnosis)]
    output.answer(document, "\n".join(text), failed=not diagnosis.healthy)


def _findings(diagnosis: Diagnosis, output: Output) -> Iterator[str]:
    for finding in diagnosis.findings:
        level = ERROR if finding.level == "error" else WARNING
        yield output.colored(f"{level} ({finding.id}): {lines(finding.text)}", level)
        if finding.advice:
            yield f"    {lines(finding.advice)}"
    if not diagnosis.findings:
        yield output.colored("No problems found.", SUCCESS)


def _facts(diagnosis: Diagnosis) -> Iterator[str]:
    file = diagnosis.storage
    bug = "has the WAL-reset bug" if diagnosis.has_wal_reset_bug else "without the WAL-reset bug"
    free = 100 * file.free / file.size if file.size else 0
    yield f"SQLite {file.sqlite_version}, {bug}; {file.sqlite_source}"
    yield f"file: {file.path or 'none, in memory'}, {file.size:,} bytes, {free:.0f} % free pages"
    if diagnosis.unused is not None:
        yield f"fragmentation: {diagnosis.unused:,} bytes are unused inside the queue's pages"
    yield f"write-ahead log: {file.wal_size:,} bytes"
    yield f"paused schedules: {', '.join(diagnosis.paused_schedules) or 'none'}"
    yield f"journal mode: {file.journal_mode}, synchronous: {SYNCHRONOUS[file.synchronous]}"
    if not diagnosis.checked:
        yield "integrity: not checked (--quick)"


# backup


def _add_backup_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help="a file that does not exist yet")


def _backup(options: Options, output: Output) -> None:
    using, path = options["database"] or queue_alias(), options["path"]
    size = storage(using).size
    with output.progress("bytes", size) as update:
        written = back_up(using, path, lambda done, total: update(size * done // (total or 1)))
    output.answer(
        {"path": str(path), "bytes": written}, f"{cell(path)} written: {written:,} bytes."
    )


# vacuum


def _add_vacuum_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--full",
        action="store_true",
        help="rewrite the file: needs as much free disk space as the file, and blocks writers",
    )
    add_yes(parser)


def _vacuum(options: Options, output: Output) -> None:
    using = options["database"] or queue_alias()
    before = storage(using)
    if options["full"]:
        question = (
            f"Rewrite the file of {before.size:,} bytes? All writers are blocked meanwhile, and "
            "the disk needs space for a second copy."
        )
        output.confirm(question, options)
        freed = vacuum_fully(using)
    else:
        with output.progress("bytes", before.free) as update:
            freed = vacuum_incrementally(using, update)
    output.answer(
        {"bytes_before": before.size, "bytes_freed": freed, "full": options["full"]},
        f"{freed:,} of {before.size:,} bytes freed.",
    )


# fmt: off
SUBCOMMANDS = (
    Subcommand("health", "Check that due messages are being consumed; exit with 1 if not.",
        _health, _add_health_arguments, "mqlite health --max-age 5m"),
    Subcommand("doctor", "Check settings, file, disk, SQLite and workers, and suggest solutions.",
        _doctor, _add_doctor_arguments, "mqlite doctor --quick"),
    Subcommand("backup", "Copy the database to a new file while it is in use.",
        _backup, _add_backup_arguments, "mqlite backup queue-backup.sqlite3"),
    Subcommand("vacuum", "Return free pages to the disk, or rewrite the file with --full.",
        _vacuum, _add_vacuum_arguments, "mqlite vacuum --full"),
)
# fmt: on
