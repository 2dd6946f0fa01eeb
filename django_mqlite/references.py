"""Foreign keys of the project that refer to messages, which therefore cannot be deleted."""

import json
from collections.abc import Collection, Sequence
from typing import Any

# What a foreign key deletes or sets to NULL itself is no obstacle. Read from the file: a model
# need not exist for every table.
REFERENCES = """
    SELECT t.name, f."from"
      FROM sqlite_master AS t, pragma_foreign_key_list(t.name) AS f
     WHERE t.type = 'table' AND lower(f."table") = 'mqlite_messages'
       AND f.on_delete IN ('NO ACTION', 'RESTRICT')
"""


SHOWN = 20


def named(ids: Sequence[int]) -> str:
    """Return the ids for people: the first 20, and how many more there are."""
    text = ", ".join(f"#{id}" for id in ids[:SHOWN])
    return text if len(ids) <= SHOWN else f"{text} (+{len(ids) - SHOWN})"


def referenced(connection: Any, ids: Collection[int]) -> set[int]:
    """Return those of these messages that a row of another table refers to.

    Asked before deleting, because Django's foreign keys are deferred: SQLite would only refuse the
    commit, which may be the caller's, and not name the message.
    """
    found: set[int] = set()
    quoted = connection.ops.quote_name
    with connection.cursor() as cursor:
        cursor.execute(REFERENCES)
        for table, column in cursor.fetchall():
            cursor.execute(
                "SELECT value FROM json_each(%s)"  # noqa: S608 - names from the schema, quoted
                f" WHERE value IN (SELECT {quoted(column)} FROM {quoted(table)})",
                [json.dumps(list(ids))],
            )
            found.update(id for (id,) in cursor.fetchall())
    return found
