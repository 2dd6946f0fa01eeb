"""The file itself: its size, its health, its free pages, a copy of it."""

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
    """What SQLite says of the file; `auto_vacuum` 2 is incremental, `synchronous` 0 is OFF."""

    page_size: int
    page_count: int
    free_pages: int
    auto_vacuum: int
    journal_mode: str
    synchronous: int
    sqlite_version: str
    sqlite_source: str


def file_facts(connection: Connection) -> FileFacts:
    """The facts, as of now."""
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


def damages(connection: Connection) -> list[str]:
    """What is wrong with the file, in SQLite's words; [] if it is complete and consistent."""
    return [said for (said,) in INTEGRITY.all(connection)]


# dbstat is an option of SQLite's build. Reads every page.
UNUSED_BYTES = Statement(
    "SELECT sum(unused) FROM dbstat WHERE aggregate = true AND name LIKE 'mqlite_%%'",
)
HAS_DBSTAT = Statement("SELECT 1 FROM pragma_module_list() WHERE name = 'dbstat'")


def unused_bytes(connection: Connection) -> int | None:
    """Bytes left free inside the pages of the queue's tables; None where SQLite cannot tell."""
    if HAS_DBSTAT.one(connection) is None:
        return None
    row = UNUSED_BYTES.one(connection)
    return row[0] if row else None


def vacuum_some(driver: Any) -> None:
    """Give at most a thousand free pages back; a write transaction like any other.

    A script, and asked of the driver's connection: a cursor takes the statement for one that
    returns no rows, and stops after the first page.
    """
    driver.executescript("PRAGMA incremental_vacuum(1000)")


VACUUM_ALL = Statement("VACUUM")


def vacuum_all(connection: Connection) -> None:
    """Write the file anew without free pages; nobody else can write meanwhile."""
    VACUUM_ALL.all(connection)


MAKE_INCREMENTAL = Statement("PRAGMA auto_vacuum = 2")


def make_incremental(connection: Connection) -> None:
    """From the next VACUUM on free pages can be given back one by one."""
    MAKE_INCREMENTAL.all(connection)


PAGES_A_STEP = 500


def back_up(driver: Any, copy: Any, progress: Callable[[int, int], object]) -> list[str]:
    """Copy the database as it is now into the empty one of `copy`; what is wrong with the copy.

    Both are the driver's connections. Through SQLite's backup API, with the snapshot held all the
    while: otherwise each commit of somebody else would make it begin anew, and beside a busy worker
    it would never end. Writers go on meanwhile; the write-ahead log grows. `progress` is told the
    pages that are done, and how many there are.
    """
    with _snapshot(driver):
        driver.backup(
            copy,
            pages=PAGES_A_STEP,
            progress=lambda _status, remaining, total: progress(total - remaining, total),
            sleep=0,
        )
    rows = copy.execute("PRAGMA quick_check").fetchall()
    return [said for (said,) in rows if said != "ok"]


@contextmanager
def _snapshot(driver: Any) -> Iterator[None]:
    driver.execute("BEGIN DEFERRED")
    try:
        driver.execute("SELECT count(*) FROM sqlite_master").fetchall()
        yield
    finally:
        driver.execute("ROLLBACK")
