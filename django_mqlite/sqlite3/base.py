"""The engine: Django's own, with writers admitted fairly and defaults under which they can be."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from django.db.backends.sqlite3 import base

from .connection import Connection, Cursor
from .creation import DatabaseCreation
from .driver import Database
from .options import TRANSACTION_MODE, completed
from .threads import close_with_thread

SQLITE_READONLY = 8


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's database wrapper on the engine's connections."""

    Database = Database
    creation_class = DatabaseCreation

    def get_connection_params(self) -> dict[str, Any]:
        options = completed(
            self.settings_dict["OPTIONS"], f"settings.DATABASES[{self.alias!r}]['OPTIONS']"
        )
        params = super().get_connection_params()
        if "transaction_mode" not in options:
            self.transaction_mode = TRANSACTION_MODE
        self._journal_mode = options["journal_mode"]
        own = [
            f"PRAGMA {name} = {options[name]}"
            for name in ("synchronous", "journal_size_limit")
            if options[name] is not None
        ]
        self.init_commands: list[str] = [*own, *self.init_commands]
        for name in ("journal_mode", "synchronous", "journal_size_limit"):
            params.pop(name, None)
        return {**params, "timeout": options["timeout"]}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        opened: list[Connection] = []

        def opening(*arguments: Any, **options: Any) -> Connection:
            opened.append(Connection(*arguments, **options))
            return opened[-1]

        try:
            # sqlite3.connect() only calls the factory, so Django's own opens pysqlite3's as well.
            connection = super().get_new_connection({**conn_params, "factory": opening})
            self._prepare(connection)
        except BaseException:
            for connection in opened:  # an init command that fails has opened one all the same
                connection.close()
            raise
        return connection

    def _prepare(self, connection: Any) -> None:
        connection.set_own_wait(0)  # whatever an init command has said of it
        if self._enter_journal_mode(connection) != "wal":
            # There a commit waits for readers, also the one at the end of a fetch or of a close.
            connection.keep_own_wait()
        close_with_thread(self, connection)

    def _enter_journal_mode(self, connection: Any) -> str:
        """The mode that it is in then. The file remembers WAL: where it is so, this only looks."""
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
        """Without autocommit the driver begins the transactions, and in this mode too."""
        level = None if autocommit else (self.transaction_mode or "")
        with self.wrap_database_errors:
            self.connection.isolation_level = level


def _journal_mode(connection: Any, pragma: str) -> str:
    ((mode,),) = connection.execute(pragma).fetchall()
    return str(mode)


class DjangoCursor(Cursor):
    """Takes `%s` and `%(name)s` for parameters, as Django writes them."""

    def execute(self, query: str, params: Any = None) -> Any:
        if params is None:
            return super().execute(query)
        names = tuple(params) if isinstance(params, Mapping) else None
        return super().execute(converted(query, names), params)

    def executemany(self, query: str, param_list: Iterable[Any]) -> Any:
        rows = iter(param_list)
        first = next(rows, None)
        if first is None:
            return super().executemany(converted(query, None), ())
        names = tuple(first) if isinstance(first, Mapping) else None
        return super().executemany(converted(query, names), chain([first], rows))


LONGEST_REMEMBERED = 4_096
"""Characters of a query: long ones are made for the occasion and seldom come again."""


def converted(query: str, names: tuple[str, ...] | None) -> str:
    """The query as the driver wants it."""
    if len(query) > LONGEST_REMEMBERED:
        return _convert(query, names)
    return _remembered(query, names)


def _convert(query: str, names: tuple[str, ...] | None) -> str:
    convert: Any = base.SQLiteCursorWrapper.convert_query  # looks at nothing of the cursor
    text: str = convert(None, query, param_names=names)
    return text


_remembered = lru_cache(maxsize=512)(_convert)
