"""The schema of a database as text, to be compared."""

from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "migrations" / "golden_schema.sql"

_OBJECTS = """
    SELECT type, name, sql FROM sqlite_master
     WHERE tbl_name LIKE 'mqlite!_%' ESCAPE '!' AND sql IS NOT NULL
     ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END, tbl_name, name
"""


def schema_of(connection) -> str:
    """Return the definition of each table, index and trigger, as stored by SQLite."""
    with connection.cursor() as cursor:
        cursor.execute(_OBJECTS)
        rows = cursor.fetchall()
    return "\n".join(f"{sql.strip()};\n" for _, _, sql in rows)
