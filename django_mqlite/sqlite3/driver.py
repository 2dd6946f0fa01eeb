"""The sqlite3 module that the engine uses: the newest installed one, its limits and its bugs."""

from datetime import date, datetime
from decimal import Decimal
from functools import cache
from sqlite3 import dbapi2 as bundled
from typing import Any, NamedTuple

from django.db.backends.sqlite3 import base
from django.utils.dateparse import parse_date, parse_datetime, parse_time


class SQLiteInUse(NamedTuple):
    """The module behind the engine, `sqlite3` or `pysqlite3`, and the version of its SQLite."""

    module: str
    version: tuple[int, int, int]


def sqlite_in_use() -> SQLiteInUse:
    """Return the SQLite that every connection of the engine in this process uses."""
    return SQLiteInUse(Database.__name__.partition(".")[0], Database.sqlite_version_info)


def _newest() -> Any:
    try:
        from pysqlite3 import dbapi2 as installed  # noqa: PLC0415 - an extra
    except ImportError:
        return bundled
    return max(bundled, installed, key=lambda module: module.sqlite_version_info)


def _convert_like_django(module: Any) -> None:
    """Register Django's converters and adapters with another sqlite3 module."""
    module.register_converter("bool", b"1".__eq__)
    module.register_converter("date", base.decoder(parse_date))
    module.register_converter("time", base.decoder(parse_time))
    module.register_converter("datetime", base.decoder(parse_datetime))
    module.register_converter("timestamp", base.decoder(parse_datetime))
    module.register_adapter(Decimal, str)
    module.register_adapter(date, base.adapt_date)
    module.register_adapter(datetime, base.adapt_datetime)


Database: Any = _newest()
if Database is not bundled:
    _convert_like_django(Database)


WAL_RESET_FIXED = (3, 51, 3)


WAL_RESET_BACKPORTS = {(3, 44, 6), (3, 50, 7)}


WAL_RESET_SINCE = (3, 7, 0)


WAL_RESET_REGRESSIONS = {(3, 52, 0)}


def has_wal_reset_bug(version: tuple[int, int, int]) -> bool:
    """Return whether this SQLite can corrupt a WAL database if a checkpoint and a write race.

    Affected are 3.7.0 to 3.51.2 except 3.44.6 and 3.50.7, and 3.52.0 (sqlite.org, "WAL-reset bug").
    """
    if version in WAL_RESET_BACKPORTS:
        return False
    return WAL_RESET_SINCE <= version < WAL_RESET_FIXED or version in WAL_RESET_REGRESSIONS


COMPILED = {2: ("MAX_COLUMN", 2_000), 9: ("MAX_VARIABLE_NUMBER", 32_766)}
"""Compile option and default of each limit, by the number of its category."""


@cache
def compiled_limit(category: int) -> int:
    """Return the limit compiled into the SQLite in use; this package never lowers it."""
    if category not in COMPILED:
        raise Database.ProgrammingError(f"unknown limit category {category}")
    name, default = COMPILED[category]
    connection = Database.connect(":memory:")
    try:
        options = connection.execute("PRAGMA compile_options").fetchall()
    finally:
        connection.close()
    values = dict(option.partition("=")[::2] for (option,) in options)
    return int(values.get(name, default))
