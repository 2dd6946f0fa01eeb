"""manage.py runreaper: ends leases that ran out and activates what is due."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from django_mqlite.checks import queue_alias
from django_mqlite.worker.faults import advice
from django_mqlite.worker.preflight import NotReady, check_writable
from django_mqlite.worker.reaper import Reaper
from django_mqlite.worker.stop import Stop, stop_on_signals
from django_mqlite.worker.sweeps import run_all


class Command(BaseCommand):
    help = (
        "Ends leases that ran out and activates scheduled messages that are due. Workers do this "
        "themselves unless started with --no-reaper; several at once are harmless."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="do what is due now, and end")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            using = queue_alias()
            check_writable(using)
            if options["once"]:
                for name, count in run_all(using).items():
                    self.stdout.write(f"{name}: {count}")
            else:
                stop = Stop()
                stop_on_signals(stop)
                Reaper(using).run(stop)
        except NotReady as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(f"The database failed: {error} ({advice(error)}).") from error
