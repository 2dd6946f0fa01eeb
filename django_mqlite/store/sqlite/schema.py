"""The schema of the tables as facts that do not depend on the formatting of their SQL."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

OBJECTS = """
    SELECT type, name, tbl_name, sql FROM sqlite_master
     WHERE tbl_name LIKE 'mqlite\\_%' ESCAPE '\\' AND sql IS NOT NULL
"""

COLUMNS = """SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?)"""

REFERENCES = """SELECT "from", "table", "to", on_delete FROM pragma_foreign_key_list(?)"""

UNIQUE = """
    SELECT group_concat(c.name, ', ')
      FROM pragma_index_list(?) AS i, pragma_index_info(i.name) AS c
     WHERE i.origin = 'u'
     GROUP BY i.name
"""

TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|\w+|\S", re.DOTALL
)


class Fact(NamedTuple):
    """A fact about an object of the schema: a column, a constraint, the text of a trigger."""

    object: str
    text: str


def shape_of(driver: Any) -> frozenset[Fact]:
    """Return the facts of the queue's tables, indexes and triggers.

    `driver` is a connection of the driver.

    Unexpected facts are additions; a missing fact was changed or lost.
    """
    return frozenset(
        fact
        for kind, name, _table, sql in driver.execute(OBJECTS).fetchall()
        for fact in _facts(driver, kind, name, sql)
    )


def _facts(driver: Any, kind: str, name: str, sql: str) -> Iterator[Fact]:
    label = f"{kind} {name}"
    if kind != "table":
        yield Fact(label, " ".join(_tokens(sql)))
        return
    yield Fact(label, "exists")
    for column, type_, not_null, default, key in driver.execute(COLUMNS, (name,)).fetchall():
        words = [f"column {column} {type_.upper()}"]
        words += ["NOT NULL"] if not_null else []
        words += [f"DEFAULT {default}"] if default is not None else []
        words += [f"PRIMARY KEY part {key}"] if key else []
        yield Fact(label, " ".join(words))
    for column, table, target, on_delete in driver.execute(REFERENCES, (name,)).fetchall():
        yield Fact(label, f"{column} REFERENCES {table} ({target}) ON DELETE {on_delete}")
    for (columns,) in driver.execute(UNIQUE, (name,)).fetchall():
        yield Fact(label, f"UNIQUE ({columns})")
    yield from (Fact(label, text) for text in _facts_in_sql(sql))


def _facts_in_sql(sql: str) -> Iterator[str]:
    """Yield the facts that no pragma reports: CHECK constraints and the kind of the table."""
    tokens = list(_tokens(sql))
    for index, word in enumerate(tokens):
        if word == "check":
            yield f"CHECK {' '.join(_parenthesis(tokens[index + 1 :]))}"
        elif word in ("autoincrement", "strict", "without"):
            yield word.upper()


def _parenthesis(tokens: list[str]) -> Iterator[str]:
    """Yield the tokens up to the parenthesis that closes the first one."""
    depth = 0
    for token in tokens:
        yield token
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0:
            return


def _tokens(sql: str) -> Iterator[str]:
    """Yield the tokens of a statement, without comments and without quotes around names."""
    for token in TOKEN.findall(sql):
        if token.startswith(("--", "/*")):
            continue
        yield token if token.startswith("'") else token.strip('"`[]').lower()
