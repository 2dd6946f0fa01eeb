"""manage.py mqlite: inspect and operate the queues, and maintain their file."""

from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from django_mqlite.management.cli import SUBCOMMANDS
from django_mqlite.management.cli.arguments import add_database, check_text
from django_mqlite.management.cli.output import Output, as_command_error


class Command(BaseCommand):
    help = "Inspect and operate the queues, and maintain their file."
    # A project that fails its checks must still be open to inspection.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
        for name, subcommand in SUBCOMMANDS.items():
            subparser = subparsers.add_parser(
                name,
                help=subcommand.help,
                description=subcommand.help,
                epilog=f"Example: manage.py {subcommand.example}",
            )
            subcommand.add_arguments(subparser)
            subparser.add_argument("--json", action="store_true", help="print JSON, for scripts")
            add_database(subparser)
            _add_django_options(subparser)

    def handle(self, *args: Any, **options: Any) -> None:
        output = Output(stdout=self.stdout, stderr=self.stderr, as_json=options["json"])
        check_text(options)
        with as_command_error(ValueError):  # verbs check names and numbers again
            SUBCOMMANDS[options["subcommand"]].run(options, output)


def _add_django_options(subparser: ArgumentParser) -> None:
    """Accept Django's own options after the subcommand, where people write them."""
    for option in ("--settings", "--pythonpath"):
        subparser.add_argument(option, default=SUPPRESS, help=SUPPRESS)
    subparser.add_argument("-v", "--verbosity", type=int, default=SUPPRESS, help=SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color"):
        subparser.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
