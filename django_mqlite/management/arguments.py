"""Argument types and options that several commands share."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from django_mqlite.arguments import encode_text
from django_mqlite.timing import MAX_DURATION_MS
from django_mqlite.types import MAX_INTEGER


def names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Comma-separated names, or a sequence of names from call_command(), in order, each once."""
    listed = given.split(",") if isinstance(given, str) else given
    return tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))


def count(text: str) -> int:
    """A whole number of at least 1 that the database can hold."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    if not 1 <= int(text) <= MAX_INTEGER:
        raise ArgumentTypeError(f"{text} is not between 1 and {MAX_INTEGER}")
    return int(text)


def interval(text: str) -> float:
    """Seconds between two looks: a tenth at least, so that looking is not all that is done."""
    value = seconds(text)
    if value < 0.1:
        raise ArgumentTypeError(f"{text!r} is less than 0.1 s")
    return value


def seconds(text: str) -> float:
    """Seconds, not negative, at most 100 years."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 <= value <= MAX_DURATION_MS / 1000:
        raise ArgumentTypeError(f"{text!r} is no length of time of at most 100 years")
    return value


def check_text(options: Mapping[str, Any]) -> None:
    """CommandError for bytes on the command line that are no text: nothing can be called so."""
    for option in options.values():
        for value in option if isinstance(option, list) else [option]:
            if isinstance(value, str | Path):
                try:
                    encode_text(str(value), "an argument")
                except ValueError as error:
                    raise CommandError(str(error)) from error


def add_database(parser: ArgumentParser) -> None:
    """[--database ALIAS]"""
    parser.add_argument(
        "--database",
        choices=tuple(connections),
        help="the database of the queues; default: the one the routers name",
    )


def add_skip_checks(parser: ArgumentParser) -> None:
    """[--skip-checks], of a command that runs them itself."""
    parser.add_argument("--skip-checks", action="store_true", help="skip the system checks")
