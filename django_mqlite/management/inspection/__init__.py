"""The subcommands of `manage.py mqlite`, a module each: HELP, add_arguments() and run()."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, Protocol

from . import health, peek, purge, redrive, stats
from .output import Output


class Subcommand(Protocol):
    """What a module here has to have."""

    HELP: str

    def add_arguments(self, parser: ArgumentParser, /) -> None: ...

    def run(self, options: Mapping[str, Any], output: Output, /) -> None: ...


SUBCOMMANDS: dict[str, Subcommand] = {
    "stats": stats,
    "peek": peek,
    "redrive": redrive,
    "purge": purge,
    "health": health,
}
