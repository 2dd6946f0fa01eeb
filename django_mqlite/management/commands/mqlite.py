"""manage.py mqlite: inspect and operate the queues, and maintain their file."""

import shutil
import textwrap
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import DjangoHelpFormatter, no_translations

from django_mqlite.management.cli import GROUPS, SUBCOMMANDS
from django_mqlite.management.cli.arguments import add_database, check_text
from django_mqlite.management.cli.command import ShellCommand
from django_mqlite.management.cli.output import as_command_error


class HelpFormatter(RawDescriptionHelpFormatter, DjangoHelpFormatter):
    """Django's order of the options, and a description of several paragraphs."""


class Command(ShellCommand):
    help = "Inspect and operate the queues, and maintain their file."
    # A project that fails its checks must still be open to inspection.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = HelpFormatter
        parser.description = _description()
        subparsers = parser.add_subparsers(
            dest="subcommand", required=True, metavar="COMMAND", help="one of these commands"
        )
        for name, subcommand in SUBCOMMANDS.items():
            subparser = subparsers.add_parser(
                name,
                formatter_class=RawDescriptionHelpFormatter,
                description=textwrap.fill(subcommand.help, _width()),
                epilog=f"example:\n  manage.py {subcommand.example}",
            )
            subcommand.add_arguments(subparser)
            if subcommand.prints_json:
                text = "print JSON, for scripts"
                subparser.add_argument("--json", action="store_true", help=text)
            add_database(subparser)
            _add_django_options(subparser)

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        output = self.output(options)
        check_text(options)
        with as_command_error(ValueError):  # verbs check names and numbers again
            SUBCOMMANDS[options["subcommand"]].run(options, output)


def _description() -> str:
    """Return the commands with their help, under the heading of their group."""
    column = max(map(len, SUBCOMMANDS)) + 4
    width = max(_width(), column + 20)
    paragraphs = [textwrap.fill(Command.help, width)]
    for heading, names in GROUPS.items():
        lines = [
            textwrap.fill(
                f"  {name:<{column - 2}}{SUBCOMMANDS[name].help}",
                width,
                subsequent_indent=" " * column,
            )
            for name in names
        ]
        paragraphs.append("\n".join([f"{heading}:", *lines]))
    closing = "`manage.py mqlite COMMAND --help` shows the options of a command and an example."
    return "\n\n".join([*paragraphs, textwrap.fill(closing, width)])


def _width() -> int:
    """Return the width of the help, as argparse chooses it."""
    return max(shutil.get_terminal_size().columns - 2, 20)


def _add_django_options(subparser: ArgumentParser) -> None:
    """Accept Django's own options after the subcommand, where people write them."""
    for option in ("--settings", "--pythonpath"):
        subparser.add_argument(option, default=SUPPRESS, help=SUPPRESS)
    subparser.add_argument("-v", "--verbosity", type=int, default=SUPPRESS, help=SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color"):
        subparser.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
