"""The database file: status, integrity, vacuum and backup."""

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
    """A vacuum or a backup is not possible; the message says why and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Facts about the file from SQLite and the file system; sizes in bytes."""

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
    """Return the facts about the database's file. Reads only."""
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
    """Return the size of the write-ahead log.

    The file is not opened, because closing it would release the locks that SQLite holds.
    """
    path = database_path(using)
    if path is None:
        return 0
    try:
        return sidecar(path, "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def find_damage(using: str) -> list[str]:
    """Return SQLite's descriptions of damage to the file. Reads the whole file."""
    return store.database_file.find_damage(connections[using])


def unused_bytes(using: str) -> int | None:
    """Return the unused bytes in the pages of the queue's tables; None if SQLite has no dbstat."""
    return store.database_file.unused_bytes(connections[using])


def vacuum_incrementally(using: str, progress: Callable[[int], object]) -> int:
    """Release the free pages to the disk in batches; return the number of bytes.

    Each batch is a short write transaction. `progress` is called with the number of bytes so far.
    Raises NotPossible for a file that was not created with auto_vacuum=INCREMENTAL.
    """
    before = storage(using)
    if not before.incremental:
        raise NotPossible(
            "The free pages of this file can only be returned all at once, because it was not "
            "created with auto_vacuum=INCREMENTAL. `manage.py mqlite vacuum --full` rewrites it "
            "with this mode, and blocks all writers while it runs."
        )
    freed = 0
    while True:
        with yield_to_other_writers(using):
            _vacuum_batch(connections[using])
        now_freed = before.size - storage(using).size
        progress(now_freed)
        if now_freed <= freed or storage(using).free == 0:
            return max(now_freed, freed)
        freed = now_freed


def _vacuum_batch(connection: Any) -> None:
    with connection.wrap_database_errors:
        store.database_file.vacuum_batch(connection.connection)


def vacuum_fully(using: str) -> int:
    """Rewrite the file without free pages; return the number of bytes by which it shrank.

    All other writers are blocked, and the disk needs space for a second copy and as much again in
    the write-ahead log. Afterwards vacuum_incrementally() is possible.
    """
    if in_callers_transaction(using) or connections[using].in_atomic_block:
        raise NotPossible("VACUUM cannot run inside a transaction.")
    before = storage(using)
    store.database_file.vacuum_all(connections[using])
    return max(0, before.size - storage(using).size)


def back_up(using: str, path: Path, progress: Callable[[int, int], object]) -> int:
    """Copy the database to `path`, which must not exist; return the size of the copy.

    Uses SQLite's backup API, which blocks neither readers nor writers. The copy is checked, and it
    gets its name only when it is complete. `progress` is called with the number of copied pages and
    the total number of pages. Raises NotPossible.
    """
    try:
        return _back_up(using, path, progress)
    except OSError as error:
        raise NotPossible(f"Cannot write a backup to {path}: {error.strerror}.") from error


def _back_up(using: str, path: Path, progress: Callable[[int, int], object]) -> int:
    if path.exists():
        raise _exists(path)
    if not path.parent.is_dir():
        raise NotPossible(f"Cannot write a backup to {path}: there is no directory {path.parent}.")
    if in_callers_transaction(using) or connections[using].in_atomic_block:
        raise NotPossible("A backup cannot be made inside a transaction.")
    # The name is unique, so that two backups to the same path do not write to one file.
    partial = path.with_name(f"{path.name}.{os.getpid()}-{token_hex(4)}.partial")
    try:
        damage = _copy(using, partial, progress)
        if damage:
            raise NotPossible(f"The copy is damaged and was deleted: {damage[0]}")
        _rename(partial, path)
    finally:
        for name in (partial.name, f"{partial.name}-wal", f"{partial.name}-shm"):
            partial.with_name(name).unlink(missing_ok=True)
    return path.stat().st_size


def _copy(using: str, path: Path, progress: Callable[[int, int], object]) -> list[str]:
    connection: Any = connections[using]
    connection.ensure_connection()
    with connection.wrap_database_errors, closing(connection.Database.connect(path)) as copy:
        return store.database_file.back_up(connection.connection, copy, progress)


def _rename(partial: Path, path: Path) -> None:
    """Rename with a hard link, which, unlike rename(), does not replace an existing file."""
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links
        if path.exists():
            raise _exists(path) from None
        partial.rename(path)


def _exists(path: Path) -> NotPossible:
    return NotPossible(f"{path} exists: a backup does not overwrite files. Choose another path.")
