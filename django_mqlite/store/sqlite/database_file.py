"""The database file: size, integrity, vacuum and backup."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .base import Connection, Statement

FILE_FACTS = Statement(
    """
    SELECT page_size, page_count, freelist_count, auto_vacuum, journal_mode, synchronous,
           sqlite_version(), sqlite_source_id()
      FROM pragma_page_size(), pragma_page_count(), pragma_freelist_count(),
           pragma_auto_vacuum(), pragma_journal_mode(), pragma_synchronous()
    """,
)


class FileFacts(NamedTuple):
    """Facts reported by SQLite; `auto_vacuum` 2 means incremental, `synchronous` 0 means OFF."""

    page_size: int
    page_count: int
    free_pages: int
    auto_vacuum: int
    journal_mode: str
    synchronous: int
    sqlite_version: str
    sqlite_source: str


def file_facts(connection: Connection) -> FileFacts:
    """Return the current facts about the file."""
    (row,) = FILE_FACTS.all(connection)
    return FileFacts._make(row)


# Reads every page.
INTEGRITY = Statement(
    """
    SELECT integrity_check FROM pragma_integrity_check() WHERE integrity_check <> 'ok'
     UNION ALL
    SELECT 'a row of ' || "table" || ' refers to a missing row of ' || parent
      FROM pragma_foreign_key_check()
     WHERE "table" LIKE 'mqlite_%%'
     LIMIT 100
    """,
)


def find_damage(connection: Connection) -> list[str]:
    """Return SQLite's descriptions of damage to the file; [] if it is intact."""
    return [description for (description,) in INTEGRITY.all(connection)]


# Reads every page.
UNUSED_BYTES = Statement(
    "SELECT sum(unused) FROM dbstat WHERE aggregate = true AND name LIKE 'mqlite_%%'",
)
# dbstat is a compile-time option of SQLite.
HAS_DBSTAT = Statement("SELECT 1 FROM pragma_module_list() WHERE name = 'dbstat'")


def unused_bytes(connection: Connection) -> int | None:
    """Return the unused bytes in the pages of the queue's tables; None if SQLite has no dbstat."""
    if HAS_DBSTAT.one(connection) is None:
        return None
    unused: int | None = UNUSED_BYTES.value(connection)
    return unused


def vacuum_batch(driver: Any) -> None:
    """Release at most 1,000 free pages to the disk, in one write transaction.

    Executed as a script on the driver's connection, because a cursor expects no rows from this
    statement and stops after the first page.
    """
    driver.executescript("PRAGMA incremental_vacuum(1000)")


# Takes effect with the next VACUUM.
MAKE_INCREMENTAL = Statement("PRAGMA auto_vacuum = 2")

# Rewrites the file without free pages; all other writers have to wait.
VACUUM_ALL = Statement("VACUUM")


def vacuum_all(connection: Connection) -> None:
    """Rewrite the file without free pages, so that vacuum_batch() can be used afterwards."""
    MAKE_INCREMENTAL.all(connection)
    VACUUM_ALL.all(connection)


PAGES_PER_STEP = 500


def back_up(driver: Any, copy: Any, progress: Callable[[int, int], object]) -> list[str]:
    """Copy the database into the empty database of `copy`; return any damage to the copy.

    Both are connections of the driver. `progress` is called with the number of copied pages and
    the total number of pages.

    The read transaction around SQLite's backup API keeps one snapshot. Without it, each commit of
    another connection would restart the copy, and with a busy worker it would never end. Writers
    are not blocked, but the write-ahead log grows until the copy is complete.
    """
    with _snapshot(driver):
        driver.backup(
            copy,
            pages=PAGES_PER_STEP,
            progress=lambda _status, remaining, total: progress(total - remaining, total),
            sleep=0,
        )
    rows = copy.execute("PRAGMA quick_check").fetchall()
    return [description for (description,) in rows if description != "ok"]


@contextmanager
def _snapshot(driver: Any) -> Iterator[None]:
    driver.execute("BEGIN DEFERRED")
    try:
        driver.execute("SELECT count(*) FROM sqlite_master").fetchall()
        yield
    finally:
        driver.execute("ROLLBACK")
