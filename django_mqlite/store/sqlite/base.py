"""Statements and their cursors, message rows, the write lock, and the schema number."""

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ...types import Lease


class Connection(Protocol):
    """The part of Django's database wrappers that the store uses."""

    def cursor(self) -> AbstractContextManager[Any]: ...


class NotUtf8(str):
    """Text from another program that is not UTF-8, decoded with replacement characters."""

    __slots__ = ()


def decode_text(raw: bytes) -> str:
    """Return the text, with replacement characters where it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return NotUtf8(raw.decode(errors="replace"))


def is_not_utf8(error: BaseException) -> bool:
    """Return whether the error means that the driver could not decode text."""
    return str(error).startswith("Could not decode to UTF-8")


@contextmanager
def reading_any_text(connection: Any) -> Iterator[None]:
    """Decode with decode_text() inside the block; slower, so use it only if the driver failed."""
    driver = connection.connection
    factory = driver.text_factory
    driver.text_factory = decode_text
    try:
        yield
    finally:
        driver.text_factory = factory


@dataclass(frozen=True, slots=True)
class Statement:
    """A whole SQL statement; values are bound as `%(name)s`.

    Its methods own every cursor. An undrained `RETURNING` is a held write lock, so rows are fetched
    completely before the first is returned.

    Statements that find rows by id use CROSS JOIN and NOT INDEXED: with outdated statistics, the
    planner would otherwise walk a partial index for each id.
    """

    sql: str

    def all(self, connection: Connection, **params: Any) -> list[tuple[Any, ...]]:
        """Execute the statement and return every row.

        Text that is not UTF-8 is read again by decode_text(). A statement that writes raises the
        error instead, and its verb is repeated.
        """
        try:
            return self._all(connection, params)
        except Exception as error:
            if "RETURNING" in self.sql or not is_not_utf8(error):
                raise
        with reading_any_text(connection):
            return self._all(connection, params)

    def _all(self, connection: Connection, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(self.sql, params)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def one(self, connection: Connection, **params: Any) -> tuple[Any, ...] | None:
        """Execute the statement and return its first row, or None if there is none."""
        rows = self.all(connection, **params)
        return rows[0] if rows else None

    def value(self, connection: Connection, **params: Any) -> Any:
        """Execute the statement and return the first column of its first row, or None."""
        row = self.one(connection, **params)
        return row[0] if row else None

    def run(self, connection: Connection, **params: Any) -> int:
        """Execute the statement and return the number of rows it changed."""
        with connection.cursor() as cursor:
            cursor.execute(self.sql, params)
            count: int = cursor.rowcount
        return count


class MessageRow(NamedTuple):
    """A row of `mqlite_messages`, in the column order of every statement that returns messages."""

    id: int
    queue: str
    state: str
    priority: int = 0
    line: str | None = None
    blocked: int = 0
    visible_at: int = 0
    enqueued_at: int = 0
    expires_at: int = 0
    locked_at: int = 0
    locked_until: int = 0
    lock_token: str | None = None
    locked_by: str | None = None
    delivery_count: int = 0
    max_delivery_count: int = 0
    message_id: str | None = None
    unique_key: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    group_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    properties: str | None = None
    body: bytes = b""
    errors: str | None = None
    result: str | None = None
    finished_at: int = 0
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None


MESSAGE_COLUMNS = ", ".join(MessageRow._fields)
"""The columns of a statement that returns messages."""

M_COLUMNS = ", ".join(f"m.{column}" for column in MessageRow._fields)
"""The same columns for a statement that calls the table `m`."""


UNFINISHED = "state IN ('active', 'locked', 'deferred', 'scheduled')"
"""The condition of the partial indexes on unfinished messages, which a statement must repeat."""


# Another program may have stored a value that is not an array. It becomes the first element of one,
# because statements that append to it would otherwise fail or append nothing.
ERRORS = """CASE WHEN errors IS NULL THEN '[]'
                WHEN NOT json_valid(errors) THEN json_array(errors)
                WHEN json_type(errors) <> 'array' THEN json_array(json(errors))
                ELSE errors END"""
"""The column `errors` as an array."""


def in_claim_order(rows: Iterable[tuple[Any, ...]]) -> list[MessageRow]:
    """Sort the rows by priority, then id. RETURNING has no order."""
    return sorted(map(MessageRow._make, rows), key=lambda row: (-row.priority, row.id))


BEGIN = Statement("BEGIN IMMEDIATE")

# Changes nothing, but waits for the write lock in a transaction that may have started as DEFERRED.
# It fails immediately if that transaction has read and another writer has committed since: only the
# owner of the transaction can retry it.
ACQUIRE_WRITE_LOCK = Statement("UPDATE mqlite_meta SET value = value WHERE key IS NULL")


def data_version(driver: Any) -> int:
    """Return a number that changes when another connection commits to the file.

    This uses the driver's connection instead of Django's cursor: an idle worker runs it ten times a
    second, and the wrappers would double its cost and fill the query log.
    """
    ((version,),) = driver.execute("PRAGMA data_version").fetchall()
    return int(version)


def encode_leases(leases: Iterable[Lease]) -> str:
    """Return the JSON array of [id, token, queue] that statements read with json_each."""
    return json.dumps([(lease.id, lease.lock_token, lease.queue) for lease in leases])


SCHEMA = "1"
"""Incremented by changes to the tables that older code cannot work with, not by additions."""

SCHEMA_TOKEN = Statement("SELECT value FROM mqlite_meta WHERE key = 'schema'")


def schema_token(connection: Connection) -> str | None:
    """Return the schema number that is stored in the database, or None if there is none."""
    row = SCHEMA_TOKEN.one(connection)
    return row[0] if row else None


WRITE_SCHEMA_TOKEN = Statement(
    """
    INSERT INTO mqlite_meta (key, value, updated_at) VALUES ('schema', %(schema)s, %(now)s)
    ON CONFLICT (key) DO NOTHING
    """,
)


def write_schema_token(connection: Connection, *, now: int) -> None:
    """Store the schema number in the database, unless it has one."""
    WRITE_SCHEMA_TOKEN.run(connection, schema=SCHEMA, now=now)
