"""What the engine's SQLite can do, where Django would ask a driver that does not know."""

from functools import cache

from django.db.backends.sqlite3 import features

from .driver import Database

MAX_VARIABLES = 32_766
"""SQLite's own default since 3.32."""


class DatabaseFeatures(features.DatabaseFeatures):
    """Django's, but for the bound that pysqlite3 cannot be asked for."""

    @property
    def max_query_params(self) -> int:  # type: ignore[override]
        if hasattr(Database.Connection, "getlimit"):
            limit: int = super().max_query_params
            return limit
        return compiled_limit()


@cache
def compiled_limit() -> int:
    """How many parameters a statement may have in the SQLite that was compiled in."""
    connection = Database.connect(":memory:")
    try:
        options = connection.execute("PRAGMA compile_options").fetchall()
    finally:
        connection.close()
    said = dict(option.partition("=")[::2] for (option,) in options)
    return int(said.get("MAX_VARIABLE_NUMBER", MAX_VARIABLES))
