"""Run the suite on the SQLite of pysqlite3 instead of the one Python was built with."""

import os
import sqlite3
import sys

REQUESTED = os.environ.get("MQLITE_TEST_CURRENT_SQLITE") == "1"
OLDEST_CURRENT = (3, 53, 0)


def install_if_requested() -> None:
    """Replace `sqlite3` by pysqlite3 in this process and, by the environment, in its children.

    Raise an error if that would have no effect, or a lane would test the old SQLite unnoticed.
    """
    if not REQUESTED:
        return
    if "django.db.backends.sqlite3.base" in sys.modules:
        raise RuntimeError("Django has loaded its SQLite backend already: too late for pysqlite3.")
    import pysqlite3.dbapi2  # noqa: PLC0415 - an extra, absent from most test runs

    if pysqlite3.dbapi2.sqlite_version_info < OLDEST_CURRENT:
        raise RuntimeError(f"pysqlite3 brings only SQLite {pysqlite3.dbapi2.sqlite_version}.")
    for name in dir(sqlite3):  # numbers that pysqlite3 does not name, and Django does
        if name.startswith("SQLITE_LIMIT_"):
            setattr(pysqlite3, name, getattr(sqlite3, name))
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
