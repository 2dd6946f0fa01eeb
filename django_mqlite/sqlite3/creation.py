"""Test databases, cloned with SQLite's backup API because the newest commits are in the WAL."""

from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from django.db.backends.sqlite3 import creation

from .driver import Database


class DatabaseCreation(creation.DatabaseCreation):
    """Test databases for `test --parallel`, one file or one in-memory database per process."""

    def _clone_test_db(self, suffix: str, verbosity: int, keepdb: bool = False) -> None:
        target = self.get_test_db_clone_settings(suffix)["NAME"]
        if target == self.connection.settings_dict["NAME"]:
            return  # in memory: a fork copies it
        if keepdb and Path(target).exists():
            return
        remove(target)
        self.connection.ensure_connection()
        with closing(Database.connect(target)) as clone:
            self.connection.connection.backup(clone)

    def setup_worker_connection(self, _worker_id: Any) -> None:
        # Changed in place, because new threads connect with these settings.
        self.connection.settings_dict.update(self.get_test_db_clone_settings(_worker_id))
        self.connection.close()

    def _destroy_test_db(self, test_database_name: str, verbosity: int) -> None:
        if test_database_name and not self.is_in_memory_db(test_database_name):
            remove(test_database_name)


def remove(database: str) -> None:
    """Delete the file, and any WAL files left by a process that did not close it."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{database}{suffix}").unlink()
