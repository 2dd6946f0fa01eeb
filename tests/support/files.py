"""Database files for processes that a test starts, and those processes.

Tests open such a file only with SQLite while a process uses it: closing any other descriptor would
drop the locks of the process.
"""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.schema import GOLDEN
from tests.support.source import ROOT


def create_database(path: Path, **queues: str) -> Path:
    """Create a file with the golden schema and these queues, each with its ordering mode."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(GOLDEN.read_text(encoding="utf-8"))
        connection.executemany(
            "INSERT INTO mqlite_queues"
            " (name, ordering_mode, max_delivery_count, created_at, updated_at)"
            " VALUES (?, ?, 1000000, 0, 0)",
            queues.items(),
        )
    return path


def rows(path: Path, sql: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@contextmanager
def running(module: str, database: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run the module on the database in a process, which is killed at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ
        | {"MQLITE_TEST_DATABASE": str(database), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
