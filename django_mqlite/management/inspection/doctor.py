"""mqlite doctor: is everything in order, and what to do where it is not."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from django_mqlite.checks import queue_alias
from django_mqlite.doctor import Diagnosis, diagnose, facts

from .output import Output

HELP = "Look whether everything is in order: settings, file, disk, SQLite, workers."
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def add_arguments(parser: ArgumentParser) -> None:
    """[--quick]"""
    parser.add_argument(
        "--quick", action="store_true", help="do not read the whole file for damages"
    )


def run(options: Mapping[str, Any], output: Output) -> None:
    """The findings with advice, and the facts; exit code 1 where something is an error."""
    using = options["database"] or queue_alias()
    found = diagnose(using, thorough=not options["quick"])
    document = {
        "healthy": found.healthy,
        "findings": [asdict(finding) for finding in found.findings],
        "facts": facts(found),
    }
    output.answer(document, "\n".join(_text(found)))
    if not found.healthy:
        sys.exit(1)


def _text(found: Diagnosis) -> Iterator[str]:
    for finding in found.findings:
        yield f"{finding.level.upper()} ({finding.id}): {finding.text}"
        if finding.advice:
            yield f"    {finding.advice}"
    if not found.findings:
        yield "Everything is in order."
    yield from _facts(found)


def _facts(found: Diagnosis) -> Iterator[str]:
    file = found.storage
    bug = "has the WAL-reset bug" if found.has_wal_reset_bug else "without the WAL-reset bug"
    free = 100 * file.free / file.size if file.size else 0
    yield f"SQLite {file.sqlite_version}, {bug}; {file.sqlite_source}"
    yield f"file: {file.path or 'none, in memory'}, {file.size:,} bytes, {free:.0f} % free pages"
    if found.unused is not None:
        yield f"fragmentation: {found.unused:,} bytes are unused inside the queue's pages"
    yield f"write-ahead log: {file.wal_size:,} bytes"
    synchronous = SYNCHRONOUS[file.synchronous]
    yield f"journal mode: {file.journal_mode}, synchronous: {synchronous}"
    if not found.checked:
        yield "integrity: not looked at (--quick)"
