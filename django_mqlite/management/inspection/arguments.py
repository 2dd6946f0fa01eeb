"""Arguments that several subcommands take."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.management.arguments import count
from django_mqlite.timing import milliseconds

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")


def age(text: str) -> timedelta:
    """Return a duration as people write it: 90, 90s, 15m, 1.5h, 2d, 1w."""
    match = AGE.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(
            f"Invalid duration {text!r}: use seconds, or a number with a unit, "
            "such as 90s, 15m, 2h or 7d."
        )
    number, unit = match.groups()
    value = float(number) * UNITS[unit or "s"]
    try:
        return timedelta(milliseconds=milliseconds(value, repr(text), least=1))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def add_selection(parser: ArgumentParser) -> None:
    """QUEUE and which of its dead letters."""
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument(
        "--id", dest="ids", type=count, nargs="+", metavar="N", help="these, by sequence number"
    )
    parser.add_argument("--limit", type=count, metavar="N", help="at most so many, oldest first")
    parser.add_argument(
        "--older-than", type=age, metavar="AGE", help="dead for at least so long: 90s, 15m, 1h, 2d"
    )
    parser.add_argument("--reason", metavar="NAME", help="dead for this reason")


def check_selection(options: Mapping[str, Any], *others: str) -> None:
    """--id names the messages one by one, so nothing else can select."""
    for name in ("limit", "older_than", "reason", *others):
        if options["ids"] and options[name]:
            option = "--" + name.replace("_", "-")
            raise CommandError(f"--id and {option} cannot be combined: --id says exactly which.")
