"""Whether the file's tables are the ones this release knows."""

from typing import Any

from .exceptions import SchemaVersionMismatch
from .store.meta import SCHEMA, schema_token

_known: set[tuple[str, str]] = set()


def check_schema(connection: Any) -> None:
    """Raise SchemaVersionMismatch for tables that this code is too old for; asked once per file.

    Neither what a minor release has added raises the file's number, nor are older tables an error.
    """
    file = (connection.alias, str(connection.settings_dict["NAME"]))
    if file in _known:
        return
    found = schema_token(connection)
    if found is not None and int(found) > int(SCHEMA):
        raise SchemaVersionMismatch(found, SCHEMA)
    _known.add(file)
