"""Which SQLite the engine runs on: pysqlite3's where it is installed and newer, else Python's."""

from datetime import date, datetime
from decimal import Decimal
from sqlite3 import dbapi2 as pythons
from typing import Any, NamedTuple

from django.db.backends.sqlite3 import base
from django.utils.dateparse import parse_date, parse_datetime, parse_time


class SQLiteInUse(NamedTuple):
    """The module behind the engine, `sqlite3` or `pysqlite3`, and the version of its SQLite."""

    module: str
    version: tuple[int, int, int]


def sqlite_in_use() -> SQLiteInUse:
    """What every connection of the engine in this process runs on."""
    return SQLiteInUse(Database.__name__.partition(".")[0], Database.sqlite_version_info)


def _newest() -> Any:
    try:
        from pysqlite3 import dbapi2 as current  # noqa: PLC0415 - an extra
    except ImportError:
        return pythons
    return max(pythons, current, key=lambda module: module.sqlite_version_info)


def _convert_like_django(module: Any) -> None:
    """What Django's engine tells Python's module about types, told to another one."""
    module.register_converter("bool", b"1".__eq__)
    module.register_converter("date", base.decoder(parse_date))
    module.register_converter("time", base.decoder(parse_time))
    module.register_converter("datetime", base.decoder(parse_datetime))
    module.register_converter("timestamp", base.decoder(parse_datetime))
    module.register_adapter(Decimal, str)
    module.register_adapter(date, base.adapt_date)
    module.register_adapter(datetime, base.adapt_datetime)


Database: Any = _newest()
if Database is not pythons:
    _convert_like_django(Database)
