"""mqlite vacuum: free pages are given back to the disk."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_mqlite.checks import queue_alias
from django_mqlite.verbs.database_file import storage, vacuum_fully, vacuum_incrementally

from .bar import bar
from .confirm import add_yes, confirm_unless_yes
from .output import Output

HELP = "Give free pages of the file back to the disk: some at a time, or with --full all at once."


def add_arguments(parser: ArgumentParser) -> None:
    """[--full] [--yes]"""
    parser.add_argument(
        "--full",
        action="store_true",
        help="write the file anew: needs as much free disk, and stops every writer meanwhile",
    )
    add_yes(parser)


def run(options: Mapping[str, Any], output: Output) -> None:
    """Return the number of bytes by which the file shrank."""
    using = options["database"] or queue_alias()
    before = storage(using)
    if options["full"]:
        question = (
            f"Write the file of {before.size:,} bytes anew? Nobody can write to it meanwhile, and "
            "the disk must have room for a second copy."
        )
        confirm_unless_yes(options, question, output)
        freed = vacuum_fully(using)
    else:
        with bar(output, "bytes", before.free) as show:
            freed = vacuum_incrementally(using, show)
    output.answer(
        {"bytes_before": before.size, "bytes_freed": freed, "full": options["full"]},
        f"Given back: {freed:,} of {before.size:,} bytes",
    )
