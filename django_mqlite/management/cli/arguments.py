"""Subcommands, the arguments that several of them take, and the types of their values."""

import math
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from django_mqlite.arguments import encode_text
from django_mqlite.managers import MessageManager
from django_mqlite.timing import MAX_DURATION_MS, milliseconds
from django_mqlite.types import MAX_INTEGER, UNFINISHED, State

from .output import Output

Options = Mapping[str, Any]
"""The parsed command line."""

UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
DURATION = re.compile(r"([0-9]*\.?[0-9]+)([smhdw]?)")


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand of `manage.py mqlite`; `example` is a call without `manage.py`."""

    name: str
    help: str
    run: Callable[[Options, Output], None]
    add_arguments: Callable[[ArgumentParser], None]
    example: str
    prints_json: bool = True


def names(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return the unique names in a comma-separated str, or in a sequence from call_command()."""
    items = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(name.strip() for name in items if name.strip()))


def queue_names(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names as names() does; raise ArgumentTypeError for a text without a name."""
    found = names(value)
    if isinstance(value, str) and not found:
        raise ArgumentTypeError(
            f"Invalid list of queues {value!r}: name at least one queue, or leave out the option."
        )
    return found


def count(text: str, *, maximum: int = MAX_INTEGER) -> int:
    """Return a whole number from 1 to `maximum`, by default the largest of the database."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not (is_number and 1 <= int(text) <= maximum):
        raise ArgumentTypeError(f"Invalid number {text!r}: use a whole number from 1 to {maximum}.")
    return int(text)


def seconds(text: str, *, minimum_ms: int = 0) -> float:
    """Return the seconds of a duration such as 90, 90s, 15m, 1.5h, 2d or 1w."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(
            f"Invalid duration {text!r}: use seconds, or a number with a unit, such as 90s, 15m, "
            "2h or 7d."
        )
    value = float(match[1]) * UNITS[match[2]]
    if not minimum_ms / 1000 <= value <= MAX_DURATION_MS / 1000:
        lower_limit = f"at least {minimum_ms / 1000:g} s and " if minimum_ms else ""
        raise ArgumentTypeError(f"Invalid duration {text!r}: use {lower_limit}at most 100 years.")
    return value


def duration(text: str) -> timedelta:
    """Return a duration of at least a millisecond."""
    return timedelta(milliseconds=milliseconds(seconds(text, minimum_ms=1), "duration"))


def interval(text: str) -> float:
    """Return the seconds between two queries: at least 0.1, to limit the load."""
    return seconds(text, minimum_ms=100)


def rate(text: str) -> float:
    """Return a positive number of messages per second."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(
            f"Invalid rate {text!r}: use a positive number of messages per second."
        )
    return value


def message_property(text: str) -> tuple[str, str]:
    """Return the name and the value of a property."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"Invalid property {text!r}: use NAME=VALUE.")
    return name, value


def state(text: str) -> State:
    """Return a state by its name; "dead" and "dead-lettered" are dead_lettered."""
    try:
        return State.DEAD_LETTERED if text == "dead" else State(text.replace("-", "_"))
    except ValueError:
        known = ", ".join(state.replace("_", "-") for state in State)
        raise ArgumentTypeError(f"Invalid state {text!r}: use one of {known}.") from None


def unfinished_state(text: str) -> State:
    """Return the state of unfinished messages with this name."""
    found = state(text)
    if found not in UNFINISHED:
        raise ArgumentTypeError(
            f"Invalid state {text!r}: use one of {', '.join(UNFINISHED)}, because other messages "
            "have ended."
        )
    return found


def check_text(options: Options) -> None:
    """Raise CommandError for bytes on the command line that are not text."""
    for option in options.values():
        for value in option if isinstance(option, list) else [option]:
            if isinstance(value, str | Path):
                try:
                    encode_text(str(value), "an argument")
                except ValueError as error:
                    raise CommandError(str(error)) from error


def add_database(parser: ArgumentParser) -> None:
    """Add [--database ALIAS]."""
    parser.add_argument(
        "--database",
        choices=tuple(connections),
        help="alias of the queues' database (default: as the database routers choose)",
    )


def add_skip_checks(parser: ArgumentParser) -> None:
    """Add [--skip-checks], for commands that run the checks themselves."""
    parser.add_argument("--skip-checks", action="store_true", help="skip the system checks")


def add_yes(parser: ArgumentParser) -> None:
    """Add [--yes]."""
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


IDS = "sequence numbers, or message ids such as the id of a task's result"


def add_ids(parser: ArgumentParser) -> None:
    """Add ID …, which may be message ids."""
    parser.add_argument("ids", nargs="+", metavar="ID", help=IDS)


def add_ids_or_queue(parser: ArgumentParser, *, any_state: bool) -> None:
    """Add [ID …], and the options that select messages of a queue instead."""
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID", help=IDS)
    add("--queue", metavar="QUEUE", help="messages of this queue instead")
    if any_state:
        add("--state", type=unfinished_state, metavar="STATE", help="in this state, with --queue")
        text = "only if the last error is of this class, with --queue"
        add("--error-class", metavar="CLASS", help=text)
    add("--limit", type=count, metavar="N", help="at most N, with --queue")


def check_ids_or_queue(options: Options) -> None:
    """Raise CommandError unless either ids or a queue is given."""
    if options["ids"] and options["queue"]:
        raise CommandError("Pass either sequence numbers or --queue, not both.")
    if not (options["ids"] or options["queue"]):
        raise CommandError("Nothing is selected: pass sequence numbers, or --queue.")
    for name in ("state", "error_class", "limit"):
        if options["ids"] and options.get(name):
            option = "--" + name.replace("_", "-")
            raise CommandError(f"{option} selects messages of a queue: pass --queue with it.")


def add_id(parser: ArgumentParser) -> None:
    """Add ID, which may be a message id."""
    parser.add_argument("id", metavar="ID", help="sequence number, or message id")


def add_selection(parser: ArgumentParser) -> None:
    """Add QUEUE, and the options that select some of its dead letters."""
    add = parser.add_argument
    add("queue", metavar="QUEUE", help="queue of the dead letters")
    add("--id", dest="ids", nargs="+", metavar="ID", help=IDS)
    add("--limit", type=count, metavar="N", help="at most N, oldest first")
    add(
        "--older-than", type=duration, metavar="AGE", help="dead for at least this long, such as 7d"
    )
    add("--reason", metavar="NAME", help="only with this reason")
    add("--error-class", metavar="CLASS", help="only if the last error is of this class")


def check_selection(options: Options, *others: str) -> None:
    """Raise CommandError if --id is combined with another selection."""
    for name in ("limit", "older_than", "reason", "error_class", *others):
        if options["ids"] and options[name]:
            option = "--" + name.replace("_", "-")
            raise CommandError(f"--id and {option} cannot be combined: pass only one of them.")


MAX_LISTED = 10


def sequence_number(messages: MessageManager[Any], given: str, *, other_names: str = "") -> int:
    """Return the sequence number: `given` itself if it is a number, otherwise a message id.

    Raises CommandError if no message has the message id, or several have it.
    """
    if given.isascii() and given.isdecimal():
        try:
            return count(given)
        except ArgumentTypeError as error:
            raise CommandError(str(error)) from error
    candidates = messages.using(messages.database).filter(message_id=given)
    matching = candidates.only("queue")[: MAX_LISTED + 1]
    if len(matching) == 1:
        return int(matching[0].pk)
    if matching:
        more = ", …" if len(matching) > MAX_LISTED else ""
        listed = ", ".join(map(str, matching[:MAX_LISTED])) + more
        raise CommandError(
            f"Several messages have the message id {given!r}: {listed}. Pass a sequence number."
        )
    raise CommandError(
        f"No message has the message id {given!r}{other_names}. A deleted message can only be "
        "found by its sequence number."
    )


def sequence_numbers(messages: MessageManager[Any], given: Iterable[str]) -> list[int]:
    """Return the sequence number of each of these, once. Raises as sequence_number() does."""
    return list(dict.fromkeys(sequence_number(messages, id) for id in given))
