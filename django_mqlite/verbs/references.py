"""Messages that a foreign key of another table refers to, which therefore cannot be deleted."""

import json
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.db import IntegrityError

from ..exceptions import MessageReferenced

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")

# Foreign keys with ON DELETE CASCADE, SET NULL or SET DEFAULT do not prevent a deletion. The keys
# are read from the schema, because not every table has a model.
REFERENCES = """
    SELECT t.name, f."from"
      FROM sqlite_master AS t, pragma_foreign_key_list(t.name) AS f
     WHERE t.type = 'table' AND lower(f."table") = 'mqlite_messages'
       AND f.on_delete IN ('NO ACTION', 'RESTRICT')
"""


def referenced(connection: Any, ids: Collection[int]) -> set[int]:
    """Return the ids of the messages that a row of another table refers to.

    Check this before deleting. Django's foreign keys are deferred, so SQLite would only reject the
    commit, which may be the caller's, without naming the message.
    """
    referenced_ids: set[int] = set()
    quote = connection.ops.quote_name
    for table, column in _referring_columns(connection):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT value FROM json_each(%s)"  # noqa: S608 - names from the schema, quoted
                f" WHERE value IN (SELECT {quote(column)} FROM {quote(table)})",
                [json.dumps(list(ids))],
            )
            referenced_ids.update(id for (id,) in cursor.fetchall())
    return referenced_ids


def require_unreferenced(connection: Any, id: int, verb: str) -> None:
    """Raise MessageReferenced if a row of another table refers to the message."""
    if referenced(connection, [id]):
        tables = sorted({table for table, _ in _referring_columns(connection)})
        raise MessageReferenced(verb, tables)


def _referring_columns(connection: Any) -> list[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(REFERENCES)
        columns: list[tuple[str, str]] = cursor.fetchall()
    return columns


def naming_references(verb: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Raise MessageReferenced if a foreign key prevented the deletions of the verb.

    In the caller's transaction, a deferred foreign key makes the caller's commit fail instead, with
    Django's IntegrityError.
    """

    @wraps(verb)
    def run(manager: S, /, *args: P.args, **options: P.kwargs) -> R:
        try:
            return verb(manager, *args, **options)
        except IntegrityError as error:
            if "FOREIGN KEY" not in str(error):
                raise
            connection: Any = manager.connection  # type: ignore[attr-defined]
            tables = sorted({table for table, _ in _referring_columns(connection)})
            raise MessageReferenced(verb.__name__, tables) from error

    return run


SHOWN_IDS = 20


def format_ids(ids: Sequence[int]) -> str:
    """Return the first 20 ids as readable text, and the number of remaining ids."""
    text = ", ".join(f"#{id}" for id in ids[:SHOWN_IDS])
    return text if len(ids) <= SHOWN_IDS else f"{text} (+{len(ids) - SHOWN_IDS})"
