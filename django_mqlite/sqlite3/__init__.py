"""The database engine `django_mqlite.sqlite3`: Django's own for SQLite, fit for many writers.

Loaded by Django's connection handler, perhaps before the apps are ready: nothing here needs them.
"""

from .driver import SQLiteInUse, sqlite_in_use

__all__ = ["SQLiteInUse", "sqlite_in_use"]
