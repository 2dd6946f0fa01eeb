"""The database engine `django_mqlite.sqlite3`: Django's SQLite engine with fair write locking.

Django may load this package before the apps are ready, so nothing in it may need the app registry.
"""

from .driver import SQLiteInUse, sqlite_in_use

__all__ = ["SQLiteInUse", "sqlite_in_use"]
