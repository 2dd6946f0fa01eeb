"""Every argument of every subcommand has a value that is wrong, and the command says so."""

import argparse
import contextlib

import pytest
from django.core.management import CommandError, load_command_class

from django_mqlite.management.cli import SUBCOMMANDS
from tests.support.verbs import dead_letter

from .calls import mqlite

ODD = [
    "",
    " ",
    ",",
    "-1",
    "0",
    "1.5",
    "nan",
    "9" * 5_000,
    "x" * 2_000,
    "a\x01b",
    "\ud800",
    "%s",
    "é",
]
DJANGO = {"help", "settings", "pythonpath", "verbosity", "database"}
UNTIL_INTERRUPTED = {"tail"}


def arguments_of(name):
    """The arguments of a subcommand that take a value."""
    parser = load_command_class("django_mqlite", "mqlite").create_parser("manage.py", "mqlite")
    (subparsers,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    actions = subparsers.choices[name]._actions
    return [action for action in actions if action.nargs != 0 and action.dest not in DJANGO]


def command_lines(name):
    """A command line for each argument and odd value; the others have valid values."""
    arguments = arguments_of(name)
    for argument in arguments:
        for value in ODD:
            positional = [
                value if other is argument else "1" if other.type else "jobs"
                for other in arguments
                if not other.option_strings
            ]
            option = [f"{argument.option_strings[-1]}={value}"] if argument.option_strings else []
            yield [*option, "--", *positional]


@pytest.mark.parametrize("name", sorted(SUBCOMMANDS.keys() - UNTIL_INTERRUPTED))
def test_subcommand_accepts_or_refuses_any_value(queue, tmp_path, monkeypatch, name):
    """A refusal is a CommandError or exit code 1, never another exception."""
    monkeypatch.chdir(tmp_path)
    dead_letter("jobs")

    for arguments in command_lines(name):
        with contextlib.suppress(CommandError, SystemExit):
            mqlite(name, *arguments)


@pytest.mark.parametrize("name", ["peek", "pause", "resume"])
def test_empty_queue_name_is_refused_by_name(queue, name):
    with pytest.raises(CommandError, match="must have 1 to 1024 characters"):
        mqlite(name, "")
