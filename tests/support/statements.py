"""Every SQL statement of the store, collected from its modules, so that none is forgotten."""

import importlib
import pkgutil
import re

from django_mqlite.store import sqlite
from django_mqlite.store.sqlite.base import Statement

PARAMETER = re.compile(r"%\((\w+)\)s")


def statements() -> dict[str, Statement]:
    """Return the statements by the name of their constant: `claim.CLAIM`."""
    by_name = {}
    for module in pkgutil.iter_modules(sqlite.__path__):
        imported = importlib.import_module(f"{sqlite.__name__}.{module.name}")
        for name, value in vars(imported).items():
            if isinstance(value, Statement):
                by_name[f"{module.name}.{name}"] = value
    return by_name


def parameters_of(statement: Statement) -> set[str]:
    return set(PARAMETER.findall(statement.sql))
