"""The database file: how it is, its free pages, a copy of it."""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from django.db import connections

from ..doorbell import database_path, sidecar
from ..exceptions import MqliteError
from ..store import sqlite as store
from ..transactions import in_callers_transaction, yield_to_other_writers

INCREMENTAL = 2


class NotPossible(MqliteError):
    """The file cannot be treated so; the message says why and what can be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The file as SQLite and the directory tell it; sizes in bytes."""

    path: Path | None
    size: int
    free: int
    wal_size: int
    incremental: bool
    journal_mode: str
    synchronous: int
    sqlite_version: str
    sqlite_source: str


def storage(using: str) -> Storage:
    """How the file of the database stands. A read."""
    facts = store.database_file.file_facts(connections[using])
    return Storage(
        path=database_path(using),
        size=facts.page_count * facts.page_size,
        free=facts.free_pages * facts.page_size,
        wal_size=wal_bytes(using),
        incremental=facts.auto_vacuum == INCREMENTAL,
        journal_mode=facts.journal_mode,
        synchronous=facts.synchronous,
        sqlite_version=facts.sqlite_version,
        sqlite_source=facts.sqlite_source,
    )


def wal_bytes(using: str) -> int:
    """Its size is looked up, the file is not opened: closing it would drop SQLite's locks."""
    path = database_path(using)
    if path is None:
        return 0
    try:
        return sidecar(path, "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def damages(using: str) -> list[str]:
    """What is wrong with the file, in SQLite's words. Reads all of it."""
    return store.database_file.damages(connections[using])


def unused_bytes(using: str) -> int | None:
    """What is left free inside the pages of the queue's tables; None where SQLite cannot tell."""
    return store.database_file.unused_bytes(connections[using])


def vacuum_incrementally(using: str, progress: Callable[[int], object]) -> int:
    """Give the free pages back to the disk, some at a time; how many bytes that were.

    Each batch is a short write transaction. `progress` is told the bytes so far. NotPossible for a
    file that was not made for it.
    """
    before = storage(using)
    if not before.incremental:
        raise NotPossible(
            "The free pages of this file can only be given back all at once, because it was not "
            "made with auto_vacuum=INCREMENTAL. `manage.py mqlite vacuum --full` writes it anew, "
            "and makes it so; nobody else can write meanwhile."
        )
    freed = 0
    while True:
        with yield_to_other_writers(using):
            _vacuum_some(connections[using])
        now_freed = before.size - storage(using).size
        progress(now_freed)
        if now_freed <= freed or storage(using).free == 0:
            return max(now_freed, freed)
        freed = now_freed


def _vacuum_some(connection: Any) -> None:
    with connection.wrap_database_errors:
        store.database_file.vacuum_some(connection.connection)


def vacuum_fully(using: str) -> int:
    """Write the whole file anew, without free pages; how many bytes it is smaller.

    Nobody else can write meanwhile, and the disk must have room for a second copy, which the
    write-ahead log takes too. Afterwards vacuum_incrementally() is possible.
    """
    if in_callers_transaction(using) or connections[using].in_atomic_block:
        raise NotPossible("VACUUM cannot run inside a transaction.")
    before = storage(using)
    store.database_file.make_incremental(connections[using])
    store.database_file.vacuum_all(connections[using])
    return max(0, before.size - storage(using).size)


def back_up(using: str, path: Path, progress: Callable[[int, int], object]) -> int:
    """Copy the database as it is now to `path`, where no file may be; the size of the copy.

    By SQLite's backup API, while everybody goes on reading and writing. The copy is checked, and
    gets its name only when it is complete. `progress` is told pages done and pages to do.
    """
    if path.exists():
        raise _exists(path)
    if not path.parent.is_dir():
        raise NotPossible(f"There is no directory {path.parent} to write a backup to.")
    if in_callers_transaction(using) or connections[using].in_atomic_block:
        raise NotPossible("A backup cannot be made inside a transaction.")
    # Of this run alone: another that makes the same backup at the same time has a file of its own.
    partial = path.with_name(f"{path.name}.{os.getpid()}-{token_hex(4)}.partial")
    try:
        wrong = _copied(using, partial, progress)
        if wrong:
            raise NotPossible(f"The copy is damaged and was not kept: {wrong[0]}")
        _give_name(partial, path)
    finally:
        for name in (partial.name, f"{partial.name}-wal", f"{partial.name}-shm"):
            partial.with_name(name).unlink(missing_ok=True)
    return path.stat().st_size


def _copied(using: str, path: Path, progress: Callable[[int, int], object]) -> list[str]:
    connection: Any = connections[using]
    connection.ensure_connection()
    with connection.wrap_database_errors, closing(connection.Database.connect(path)) as copy:
        return store.database_file.back_up(connection.connection, copy, progress)


def _give_name(partial: Path, path: Path) -> None:
    """A renaming would replace a file that is there by now; a hard link does not."""
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links
        if path.exists():
            raise _exists(path) from None
        partial.rename(path)


def _exists(path: Path) -> NotPossible:
    return NotPossible(f"{path} exists, and a backup overwrites nothing.")
