"""A statement sits above the one function that runs it and is called like its constant."""

import ast
import re
from collections import Counter

import pytest

from tests.support.source import PACKAGE, python_files, tree_of
from tests.support.statements import statements


def uses() -> Counter[str]:
    """By "module.CONSTANT": how many functions of that module name it."""
    found: Counter[str] = Counter()
    for path in python_files(PACKAGE / "store"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                found.update(f"{path.stem}.{name}" for name in names if name.isupper())
    return found


USES = uses()
STATEMENTS = statements()


def test_the_statements_were_found():
    assert len(STATEMENTS) > 20


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_called_like_its_constant(name):
    assert STATEMENTS[name].name == name.partition(".")[2].lower()


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_run_by_exactly_one_function(name):
    assert USES[name] == 1


def test_no_two_statements_have_the_same_name():
    names = Counter(statement.name for statement in STATEMENTS.values())

    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_names_the_columns_it_wants(name):
    """SELECT * and RETURNING * would change their shape with the next ALTER TABLE."""
    assert not re.search(r"(SELECT|RETURNING)\s+\*|\w\.\*", STATEMENTS[name].sql)


def test_no_sql_is_formatted_or_concatenated():
    """Statements are whole literals: a name in them can only be a bound parameter."""
    made = [
        f"{path.name}:{node.lineno}"
        for path in python_files(PACKAGE / "store")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Statement"
        and not all(isinstance(argument, ast.Constant) for argument in node.args)
    ]

    assert made == []
