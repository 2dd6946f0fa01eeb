"""The schema in the file, as text that can be compared."""

from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "migrations" / "golden_schema.sql"

_OURS = """
    SELECT type, name, sql FROM sqlite_master
     WHERE tbl_name LIKE 'mqlite!_%' ESCAPE '!' AND sql IS NOT NULL
     ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END, tbl_name, name
"""


def schema_of(connection) -> str:
    """Every table, index and trigger of ours, exactly as SQLite remembers it."""
    with connection.cursor() as cursor:
        cursor.execute(_OURS)
        rows = cursor.fetchall()
    return "\n".join(f"{sql.strip()};\n" for _, _, sql in rows)
