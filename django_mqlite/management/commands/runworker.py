"""manage.py runworker: claims messages and runs their handlers until it is told to stop."""

import os
import sys
from argparse import ArgumentParser
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from django_mqlite.checks import queue_alias
from django_mqlite.handlers import get_handlers
from django_mqlite.management.arguments import names, positive_int, seconds
from django_mqlite.management.inspection.errors import told_clearly
from django_mqlite.worker.child import Ended, run_child
from django_mqlite.worker.faults import advice
from django_mqlite.worker.options import WorkerOptions
from django_mqlite.worker.preflight import check_writable, served_queues
from django_mqlite.worker.stop import Stop, stop_on_signals


class Command(BaseCommand):
    help = (
        "Claims messages and runs their handlers. TERM or INT stops claiming and lets running "
        "handlers end; a second one leaves at once."
    )
    # Run after the preflight: of a locked database they say that SQLite knows no JSON.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--queues",
            type=names,
            default=(),
            metavar="A,B",
            help="in this order, * for the rest; default: all with a handler",
        )
        add("--exclude", type=names, default=(), metavar="A,B", help="not these")
        add("--threads", type=positive_int, default=4, metavar="N", help="handlers at once (4)")
        add("--burst", action="store_true", help="end when nothing is left to claim")
        add("--max-messages", type=positive_int, metavar="N", help="end after so many messages")
        add(
            "--shutdown-timeout",
            type=seconds,
            default=30.0,
            metavar="S",
            help="seconds for running handlers after TERM (30)",
        )
        add("--no-reaper", dest="reaper", action="store_false", help="leave reaping to runreaper")
        add("--skip-checks", action="store_true", help="skip the system checks")

    def handle(self, *args: Any, **options: Any) -> None:
        with told_clearly():
            handlers = get_handlers()
            using = queue_alias()
            check_writable(using)
            if not options["skip_checks"]:
                self.check()
            queues = served_queues(using, handlers, options["queues"], options["exclude"])
            worker = WorkerOptions(
                using=using,
                queues=queues,
                **{
                    name: options[name]
                    for name in ("threads", "burst", "max_messages", "shutdown_timeout", "reaper")
                },
            )
            stop = Stop()
            stop_on_signals(stop)
            ended = run_child(worker, handlers, stop)
            if ended.running:
                self._leave(ended)
            if ended.error:
                raise ended.error

    def _leave(self, ended: Ended) -> NoReturn:
        """Handlers that did not end would keep the interpreter from ending, or crash it."""
        if ended.error:
            self.stderr.write(f"The database failed: {ended.error} ({advice(ended.error)}).")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if ended.error else 0)
