"""The three helpers that own every cursor.

An undrained `RETURNING` is a held write lock, so rows are fetched to the last one before anybody
looks at the first.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


class Connection(Protocol):
    """What the store needs of a connection; Django's database wrappers have it."""

    def cursor(self) -> AbstractContextManager[Any]: ...


@dataclass(frozen=True, slots=True)
class Statement:
    """A whole SQL statement with a name; values are bound as `%(name)s`.

    Where rows are known by their ids the text says CROSS JOIN and NOT INDEXED: with statistics of
    an emptier day the planner would walk a partial index for each id instead.
    """

    name: str
    sql: str


def fetch_all(connection: Connection, statement: Statement, **params: Any) -> list[tuple[Any, ...]]:
    """Every row the statement returns."""
    with connection.cursor() as cursor:
        cursor.execute(statement.sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def fetch_one(
    connection: Connection, statement: Statement, **params: Any
) -> tuple[Any, ...] | None:
    """The first row, or None; the others are drained too."""
    rows = fetch_all(connection, statement, **params)
    return rows[0] if rows else None


def execute(connection: Connection, statement: Statement, **params: Any) -> int:
    """How many rows the statement changed."""
    with connection.cursor() as cursor:
        cursor.execute(statement.sql, params)
        count: int = cursor.rowcount
    return count
