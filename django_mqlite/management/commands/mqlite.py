"""manage.py mqlite: see and steer the queues, and look after their file."""

from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from django_mqlite.management.arguments import add_database, check_text
from django_mqlite.management.inspection import SUBCOMMANDS
from django_mqlite.management.inspection.errors import as_command_error
from django_mqlite.management.inspection.output import Output


class Command(BaseCommand):
    help = "See and steer the queues, and look after their file."
    # It must be possible to look into a project that is not in order.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
        for name, subcommand in SUBCOMMANDS.items():
            subparser = subparsers.add_parser(name, help=subcommand.HELP)
            subcommand.add_arguments(subparser)
            subparser.add_argument("--json", action="store_true", help="print JSON, for scripts")
            add_database(subparser)
            _take_django_options(subparser)

    def handle(self, *args: Any, **options: Any) -> None:
        output = Output(stdout=self.stdout, stderr=self.stderr, as_json=options["json"])
        check_text(options)
        with as_command_error():
            SUBCOMMANDS[options["subcommand"]].run(options, output)


def _take_django_options(subparser: ArgumentParser) -> None:
    """Also behind the subcommand, where people write them."""
    for option in ("--settings", "--pythonpath"):
        subparser.add_argument(option, default=SUPPRESS, help=SUPPRESS)
    subparser.add_argument("-v", "--verbosity", type=int, default=SUPPRESS, help=SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color"):
        subparser.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
