"""manage.py runreaper: release expired leases and activate due messages."""

from argparse import ArgumentParser
from typing import Any

from django_mqlite.checks import checking, queue_alias
from django_mqlite.logs import configure_default_logging
from django_mqlite.management.cli.arguments import add_database, add_skip_checks
from django_mqlite.management.cli.command import ShellCommand
from django_mqlite.management.cli.output import as_command_error
from django_mqlite.worker.dispatcher import Dispatcher
from django_mqlite.worker.reaper import Reaper, run_all
from django_mqlite.worker.shutdown import Shutdown, shutdown_on_signals
from django_mqlite.worker.watchdogs import check_writable


class Command(ShellCommand):
    help = (
        "Dispatch recurring schedules, release expired leases, activate scheduled messages that "
        "are due, and delete messages whose retention period has ended. Workers also do this, "
        "unless they are started with --no-reaper. Several reapers can run at the same time."
    )
    # handle() runs the checks after acquiring the write lock, because they report wrong errors on a
    # locked database.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument(
            "--once", action="store_true", help="run every sweep until nothing is due, then exit"
        )
        add_skip_checks(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        configure_default_logging()
        with as_command_error():
            using = options["database"] or queue_alias()
            check_writable(using)
            if not options["skip_checks"]:
                with checking(using):
                    self.check(databases=[using])
            dispatcher = Dispatcher.of_project(using)
            if options["once"]:
                dispatcher.poll()
                counts = run_all(using)
                text = "\n".join(f"{name}: {count}" for name, count in counts.items())
                self.output(options).answer(counts, text)
            else:
                shutdown = Shutdown()
                with shutdown_on_signals(shutdown):
                    Reaper(using, dispatcher).run(shutdown)
