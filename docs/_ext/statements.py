"""The directive `statements`: a store module's statements, from the code and SQLite itself.

```{statements} claim
```

shows every statement of `django_mqlite/store/sqlite/claim.py` in the order of the file: the comment
above it, its text, how SQLite finds the rows for it, and the function that executes it. It is all
taken from the code, so none of it can become outdated.
"""

import ast
import inspect
import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from django_mqlite.migrations import __name__ as migrations
from django_mqlite.store.sqlite.base import Statement

PARAMETER = re.compile(r"%\((\w+)\)s")
ACCESS = re.compile(r"(?:SEARCH|SCAN) .*(?:USING .*|VIRTUAL TABLE .*)|SCAN \w+")


@cache
def empty_database() -> sqlite3.Connection:
    """In memory, with the tables, indexes and triggers that the first migration makes."""
    initial = import_module(f"{migrations}.0001_initial")
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    for sql in (*initial.TABLES, *initial.INDEXES, *initial.TRIGGERS):
        connection.execute(sql)
    return connection


def plan_of(statement: Statement) -> list[str]:
    """How SQLite finds the rows, a line for each table that it looks into."""
    sql = PARAMETER.sub(r":\1", statement.sql).replace("%%", "%")
    parameters = dict.fromkeys(PARAMETER.findall(statement.sql))
    rows = empty_database().execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
    found = [detail for *_, detail in rows.fetchall() if ACCESS.match(detail)]
    return list(dict.fromkeys(found))


def comment_above(lines: list[str], number: int) -> str:
    """The comment that ends in the line before `number`, as a paragraph or several."""
    found: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.startswith("#"):
            break
        found.insert(0, line.removeprefix("#").strip())
    return "\n".join(found)


def runner_of(module: ModuleType, tree: ast.Module, constant: str) -> Any:
    """Return the function that names the constant, or None if only the verbs do."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            if constant in names:
                return getattr(module, node.name)
    return None


def statements_of(module: ModuleType, tree: ast.Module) -> Iterator[tuple[int, str, Statement]]:
    """Line, name and statement, in the order of the file."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = getattr(module, node.targets[0].id)
            if isinstance(value, Statement):
                yield node.lineno, node.targets[0].id, value


def chapter(name: str) -> str:
    """The module's statements as Markdown."""
    module = import_module(f"django_mqlite.store.sqlite.{name}")
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    parts = []
    for number, constant, statement in statements_of(module, tree):
        run = runner_of(module, tree, constant)
        plan = "\n".join(plan_of(statement)) or "no table is searched"
        parts += [
            f"## {constant}",
            comment_above(lines, number),
            f"```sql\n{dedent(statement.sql).strip()}\n```",
            f"How SQLite finds the rows:\n\n```text\n{plan}\n```",
        ]
        if run is not None:
            parts.append(f"`{run.__name__}()` executes it: {inspect.getdoc(run) or 'a helper.'}")
    return "\n\n".join(parts)


class Statements(SphinxDirective):
    """`{statements} claim`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = import_module(f"django_mqlite.store.sqlite.{self.arguments[0]}")
        self.env.note_dependency(str(module.__file__))
        return self.parse_text_to_nodes(chapter(self.arguments[0]), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("statements", Statements)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
