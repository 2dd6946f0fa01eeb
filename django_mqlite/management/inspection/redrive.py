"""mqlite redrive: dead letters go back to work."""

import math
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_mqlite.managers import DeadLetterManager
from django_mqlite.models import DeadLetter
from django_mqlite.types import BulkCount
from django_mqlite.verbs.dead_letters import format_ids

from .arguments import add_selection, check_selection
from .bar import bar
from .output import Output
from .selection import checked_ids

HELP = "Put dead letters of a queue back to work: all, some by age, reason or number, or by id."


def add_arguments(parser: ArgumentParser) -> None:
    """QUEUE [--id N … | --limit N --older-than AGE --reason NAME] [--into QUEUE] [--rate N]"""
    add_selection(parser)
    parser.add_argument("--into", metavar="QUEUE", help="into another queue, under new ids")
    parser.add_argument("--rate", type=_rate, metavar="N", help="spread out, so many a second")


def run(options: Mapping[str, Any], output: Output) -> None:
    """Redrive the named dead letters, or all within the limits."""
    check_selection(options)
    queue = options["queue"]
    letters = DeadLetter.objects.db_manager(options["database"])
    try:
        done = _redrive(letters, options, output)
    except ValueError as error:
        raise CommandError(str(error)) from error
    text = f"Redriven from queue {queue}: {done}"
    if done.referenced:
        text += f"\nKept, because other tables refer to them: {format_ids(done.referenced)}"
    output.answer({"queue": queue, "redriven": done, "kept": list(done.referenced)}, text)


def _redrive(
    letters: DeadLetterManager[DeadLetter], options: Mapping[str, Any], output: Output
) -> BulkCount:
    queue = options["queue"]
    how = {"into": options["into"], "rate": options["rate"]}
    if options["ids"]:
        return letters.redrive(checked_ids(letters, queue, options["ids"]), **how)
    wanted = {"older_than": options["older_than"], "reason": options["reason"]}
    count = letters.matching(queue, **wanted)[: options["limit"]].count()
    with bar(output, "dead letters", count) as show:
        return letters.redrive_queue(queue, limit=options["limit"], progress=show, **wanted, **how)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number of messages a second") from None
    if not 0 < rate < math.inf:
        raise ArgumentTypeError(f"{text!r} is no rate")
    return rate
