"""Confirmation before messages are deleted or redriven."""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from .output import Output


def add_yes(parser: ArgumentParser) -> None:
    """[--yes]"""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def must_be_askable() -> None:
    """CommandError if there is nobody to ask; said before the work, not only if there is some."""
    if not sys.stdin.isatty():
        raise CommandError("There is no terminal to ask at. Pass --yes. Nothing was done.")


def confirm_unless_yes(options: Mapping[str, Any], question: str, output: Output) -> None:
    """Return if the answer is yes or --yes was given, CommandError if it is anything else."""
    if not options["yes"]:
        must_be_askable()
        confirm(question, output)


def confirm(question: str, output: Output) -> None:
    """Return if the answer is yes, CommandError if it is anything else."""
    # To stderr, so that a redirected answer is the answer alone.
    output.stderr.write(f"{question} [y/N] ", style_func=str, ending="")
    output.stderr.flush()
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was done.")
