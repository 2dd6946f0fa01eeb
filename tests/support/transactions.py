"""A second connection to the test's database, which sees its locks and commits."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from django.db import connection


@contextmanager
def another_connection() -> Iterator[sqlite3.Connection]:
    """Open a connection without a timeout, which fails instead of waiting."""
    name = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(name, timeout=0, isolation_level=None)) as other:
        yield other


def another_writer_gets_in() -> bool:
    """Return True if the write lock is free."""
    with another_connection() as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        other.execute("ROLLBACK")
        return True


def committed_messages() -> list[int]:
    """Return the ids that other connections see."""
    with another_connection() as other:
        return [id for (id,) in other.execute("SELECT id FROM mqlite_messages ORDER BY id")]
