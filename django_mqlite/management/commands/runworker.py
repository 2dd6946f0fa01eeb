"""manage.py runworker: claim messages and run their handlers until a signal stops it."""

from argparse import ArgumentParser
from typing import Any

from django_mqlite.management.cli.arguments import add_database
from django_mqlite.management.cli.command import ShellCommand
from django_mqlite.management.cli.worker import HELP, add_worker_arguments, run_worker_command


class Command(ShellCommand):
    help = HELP
    # The command runs the checks after acquiring the write lock, because they report wrong errors
    # on a locked database.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        add_worker_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        run_worker_command(options, self.check)
