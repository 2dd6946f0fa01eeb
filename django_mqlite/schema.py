"""Compare the file's tables with those that this release expects."""

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from django.db.migrations import RunSQL
from django.db.migrations.recorder import MigrationRecorder

from . import migrations
from .exceptions import SchemaVersionMismatch
from .store import sqlite as store
from .store.sqlite.base import SCHEMA
from .store.sqlite.schema import Fact

_known: set[tuple[str, str]] = set()


def check_schema(connection: Any) -> None:
    """Raise SchemaVersionMismatch if the tables are too new for this code. Checked once per file.

    Additions of a minor release do not change the schema number, and older tables are accepted.
    """
    file = (connection.alias, str(connection.settings_dict["NAME"]))
    if file in _known:
        return
    file_schema = store.base.schema_token(connection)
    if file_schema is not None and int(file_schema) > int(SCHEMA):
        raise SchemaVersionMismatch(file_schema, SCHEMA)
    _known.add(file)


def schema_differences(connection: Any) -> list[str]:
    """Return descriptions of the schema parts that its migrations create but the file lacks.

    Additions of a newer release are ignored. A database without these tables has no differences,
    because `migrate` has not run yet. A file without recorded migrations is compared with all.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors:
        shape = store.schema.shape_of(connection.connection)
    if not shape:
        return []
    recorded = MigrationRecorder(connection).applied_migrations()
    applied = tuple(name for name in _migration_names() if ("django_mqlite", name) in recorded)
    expected = _expected(connection.Database, applied or tuple(_migration_names()))
    objects = {fact.object for fact in shape}
    differences = (_difference(fact, objects) for fact in sorted(expected - shape))
    return list(dict.fromkeys(differences))


def _difference(fact: Fact, objects: set[str]) -> str:
    if fact.object not in objects:
        return f"{fact.object} is missing"
    if fact.object.startswith("table "):
        return f"{fact.object} lacks {fact.text}"
    return f"{fact.object} differs from its original definition"


def _migration_names() -> Iterator[str]:
    names = (module.name for module in iter_modules(migrations.__path__))
    return (name for name in names if not name.startswith("_"))


@cache
def _expected(database: Any, names: tuple[str, ...]) -> frozenset[Fact]:
    """Return the shape that these migrations create, found by running their SQL in memory."""
    with closing(database.connect(":memory:")) as driver:
        for name in names:
            migration = import_module(f"{migrations.__name__}.{name}").Migration
            for operation in migration.operations:
                if isinstance(operation, RunSQL):
                    for statement in operation.sql:
                        driver.execute(statement)
        return store.schema.shape_of(driver)
