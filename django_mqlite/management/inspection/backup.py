"""mqlite backup: a copy of the database, made while everybody works on."""

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django_mqlite.checks import queue_alias
from django_mqlite.verbs.database_file import back_up, storage

from .bar import bar
from .output import Output, cell

HELP = "Copy the database into a new file, by SQLite's backup API, while everybody works on."


def add_arguments(parser: ArgumentParser) -> None:
    """PATH"""
    parser.add_argument("path", type=Path, metavar="PATH", help="where no file is yet")


def run(options: Mapping[str, Any], output: Output) -> None:
    """The size of the copy, which was checked."""
    using, path = options["database"] or queue_alias(), options["path"]
    whole = storage(using).size
    with bar(output, "bytes", whole) as show:
        size = back_up(using, path, lambda done, total: show(whole * done // (total or 1)))
    output.answer({"path": str(path), "bytes": size}, f"Written to {cell(path)}: {size:,} bytes")
