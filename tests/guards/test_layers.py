"""Imports go downwards, and the store gets time, random values and connections from above."""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.source import PACKAGE, ROOT, python_files, tree_of

FORBIDDEN_IN_STORE = {"datetime", "django", "os", "random", "secrets", "time", "uuid"}


def imported_packages(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]


@pytest.mark.parametrize("path", python_files(PACKAGE / "store"), ids=str)
def test_store_module_has_no_django_clock_or_random(path):
    assert FORBIDDEN_IN_STORE & set(imported_packages(tree_of(path))) == set()


def test_store_was_found():
    assert python_files(PACKAGE / "store")


def test_imports_only_go_downwards():
    linter = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", linter, "--no-cache"]

    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert process.returncode == 0, process.stdout + process.stderr
