"""Statements are whole literals, each is used, and each names its columns."""

import ast
import re

import pytest

from tests.support.source import PACKAGE, python_files, tree_of
from tests.support.statements import statements

STATEMENTS = statements()


def names_used() -> set[str]:
    """Return every name and attribute that the package reads."""
    used = set()
    for path in python_files(PACKAGE):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
    return used


USED = names_used()


def test_statements_were_found():
    assert len(STATEMENTS) > 20


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_is_used(name):
    assert name.partition(".")[2] in USED


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_names_its_columns(name):
    """SELECT * and RETURNING * would change their shape with the next ALTER TABLE."""
    assert not re.search(r"(SELECT|RETURNING)\s+\*|\w\.\*", STATEMENTS[name].sql)


def is_literal(node: ast.expr) -> bool:
    """Return whether `node` is a string, a constant of the module, or a sum of these."""
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return is_literal(left) and is_literal(right)
    return False


def test_statements_are_not_formatted_at_run_time():
    """Statements are put together from literals at import: values can only be bound parameters."""
    formatted = [
        f"{path.name}:{node.lineno}"
        for path in python_files(PACKAGE / "store")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Statement"
        and not all(is_literal(argument) for argument in node.args)
    ]

    assert formatted == []
