"""The bounds of SQLite that Django asks a connection for, where its driver cannot be asked."""

from functools import cache

from .driver import Database

COMPILED = {2: ("MAX_COLUMN", 2_000), 9: ("MAX_VARIABLE_NUMBER", 32_766)}
"""What SQLite calls them where it tells how it was compiled, and its defaults, by its numbers."""


@cache
def compiled_limit(category: int) -> int:
    """The bound that was compiled into the SQLite in use; nothing here ever lowers one."""
    if category not in COMPILED:
        raise Database.ProgrammingError(f"the limit {category} is not known here")
    name, default = COMPILED[category]
    connection = Database.connect(":memory:")
    try:
        options = connection.execute("PRAGMA compile_options").fetchall()
    finally:
        connection.close()
    said = dict(option.partition("=")[::2] for (option,) in options)
    return int(said.get(name, default))
