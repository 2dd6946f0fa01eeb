"""Every SQL statement of the store, found by looking, so that none can be forgotten."""

import importlib
import pkgutil
import re

from django_mqlite.store import sqlite
from django_mqlite.store.sqlite.base import Statement

PARAMETER = re.compile(r"%\((\w+)\)s")


def statements() -> dict[str, Statement]:
    """By the name of the constant that holds it: `claim.CLAIM`."""
    found = {}
    for module in pkgutil.iter_modules(sqlite.__path__):
        imported = importlib.import_module(f"{sqlite.__name__}.{module.name}")
        for name, value in vars(imported).items():
            if isinstance(value, Statement):
                found[f"{module.name}.{name}"] = value
    return found


def parameters_of(statement: Statement) -> set[str]:
    return set(PARAMETER.findall(statement.sql))
