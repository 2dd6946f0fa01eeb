"""Facts about the file, by key."""

from .statement import Connection, Statement, execute, fetch_one

SCHEMA = "1"
"""Counts up with a change of the tables that older code cannot work on; additions are none."""

SCHEMA_TOKEN = Statement("schema_token", "SELECT value FROM mqlite_meta WHERE key = 'schema'")


def schema_token(connection: Connection) -> str | None:
    """Which schema the file says it has; None if it says nothing."""
    row = fetch_one(connection, SCHEMA_TOKEN)
    return row[0] if row else None


WRITE_SCHEMA_TOKEN = Statement(
    "write_schema_token",
    """
    INSERT INTO mqlite_meta (key, value, updated_at) VALUES ('schema', %(schema)s, %(now)s)
    ON CONFLICT (key) DO NOTHING
    """,
)


def write_schema_token(connection: Connection, *, now: int) -> None:
    """Have the file say which schema it has, unless it does."""
    execute(connection, WRITE_SCHEMA_TOKEN, schema=SCHEMA, now=now)
