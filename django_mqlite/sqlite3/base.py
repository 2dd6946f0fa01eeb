"""The database wrapper: Django's, with fair write locking and defaults for concurrent writers."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from django.db.backends.sqlite3 import base

from .connection import Connection, Cursor
from .creation import DatabaseCreation
from .driver import Database
from .options import TRANSACTION_MODE, with_defaults
from .threads import close_with_thread

SQLITE_READONLY = 8


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's database wrapper on the engine's connections."""

    Database = Database
    creation_class = DatabaseCreation

    def get_connection_params(self) -> dict[str, Any]:
        options = with_defaults(
            self.settings_dict["OPTIONS"], f"settings.DATABASES[{self.alias!r}]['OPTIONS']"
        )
        params = super().get_connection_params()
        if "transaction_mode" not in options:
            self.transaction_mode = TRANSACTION_MODE
        self._journal_mode = options["journal_mode"]
        pragmas = [
            f"PRAGMA {name} = {options[name]}"
            for name in ("synchronous", "journal_size_limit")
            if options[name] is not None
        ]
        self.init_commands: list[str] = [*pragmas, *self.init_commands]
        for name in ("journal_mode", "synchronous", "journal_size_limit"):
            params.pop(name, None)
        return {**params, "timeout": options["timeout"]}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        opened: list[Connection] = []

        def open_connection(*arguments: Any, **options: Any) -> Connection:
            opened.append(Connection(*arguments, **options))
            return opened[-1]

        try:
            # sqlite3.connect() only calls the factory, so Django's code can open pysqlite3's, too.
            connection = super().get_new_connection({**conn_params, "factory": open_connection})
            self._prepare(connection)
        except BaseException:
            for connection in opened:  # opened before a failing init command
                connection.close()
            raise
        return connection

    def _prepare(self, connection: Any) -> None:
        connection.set_busy_timeout(0)  # overrides the init commands
        if self._enter_journal_mode(connection) != "wal":
            # Without WAL every commit waits for readers, including those of fetch() and close().
            connection.keep_busy_timeout()
        close_with_thread(self, connection)

    def _enter_journal_mode(self, connection: Any) -> str:
        """Set the journal mode and return the actual one; a read-only file keeps its own."""
        if self._journal_mode is not None:
            try:
                return _journal_mode(connection, f"PRAGMA journal_mode = {self._journal_mode}")
            except Database.OperationalError as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF != SQLITE_READONLY:
                    raise
        return _journal_mode(connection, "PRAGMA journal_mode")

    def create_cursor(self, name: str | None = None) -> Any:
        return self.connection.cursor(factory=DjangoCursor)

    def _set_autocommit(self, autocommit: bool) -> None:
        """Without autocommit, let the driver begin transactions in `transaction_mode`."""
        level = None if autocommit else (self.transaction_mode or "")
        with self.wrap_database_errors:
            self.connection.isolation_level = level


def _journal_mode(connection: Any, pragma: str) -> str:
    ((mode,),) = connection.execute(pragma).fetchall()
    return str(mode)


class DjangoCursor(Cursor):
    """A cursor that accepts Django's parameter styles, `%s` and `%(name)s`."""

    def execute(self, query: str, params: Any = None) -> Any:
        if params is None:
            return super().execute(query)
        names = tuple(params) if isinstance(params, Mapping) else None
        return super().execute(convert_query(query, names), params)

    def executemany(self, query: str, param_list: Iterable[Any]) -> Any:
        rows = iter(param_list)
        first = next(rows, None)
        if first is None:
            return super().executemany(convert_query(query, None), ())
        names = tuple(first) if isinstance(first, Mapping) else None
        return super().executemany(convert_query(query, names), chain([first], rows))


MAX_CACHED_QUERY = 4_096
"""Characters. Longer queries are usually generated for one use, so they are not cached."""


def convert_query(query: str, names: tuple[str, ...] | None) -> str:
    """Return the query with the placeholders of the driver."""
    if len(query) > MAX_CACHED_QUERY:
        return _convert(query, names)
    return _convert_cached(query, names)


def _convert(query: str, names: tuple[str, ...] | None) -> str:
    convert: Any = base.SQLiteCursorWrapper.convert_query  # does not use `self`
    text: str = convert(None, query, param_names=names)
    return text


_convert_cached = lru_cache(maxsize=512)(_convert)
