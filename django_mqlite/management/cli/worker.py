"""The command that runs a worker: `runworker`, and the same as `mqlite worker`."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from functools import partial

from django.core.management.base import BaseCommand, CommandError

from django_mqlite.checks import checking, queue_alias
from django_mqlite.handlers import get_handlers
from django_mqlite.logs import configure_default_logging
from django_mqlite.recurring import all_schedules
from django_mqlite.worker.options import MAX_PROCESSES, MAX_THREADS, WorkerOptions
from django_mqlite.worker.shutdown import Shutdown, shutdown_on_signals
from django_mqlite.worker.watchdogs import check_writable, served_queues

from .arguments import Options, Subcommand, add_skip_checks, count, queue_names, seconds
from .output import Output, as_command_error

HELP = (
    "Claim messages and run their handlers. TERM or INT stops claiming and lets running "
    "handlers finish; a second signal exits immediately."
)


def add_worker_arguments(parser: ArgumentParser) -> None:
    """Add the options of a worker, except --database."""
    add = parser.add_argument
    add(
        "--queues",
        type=queue_names,
        default=(),
        metavar="A,B",
        help="queues in strict order, * for all others (default: all with a handler, rotating)",
    )
    add("--exclude", type=queue_names, default=(), metavar="A,B", help="queues to skip")
    add(
        "--threads",
        type=partial(count, maximum=MAX_THREADS),
        default=4,
        metavar="N",
        help=f"concurrent handlers per process, up to {MAX_THREADS:,} (4)",
    )
    add(
        "--processes",
        type=partial(count, maximum=MAX_PROCESSES),
        default=1,
        metavar="N",
        help=f"processes, up to {MAX_PROCESSES} (1)",
    )
    add("--burst", action="store_true", help="exit when no messages are left to claim")
    add("--max-messages", type=count, metavar="N", help="exit after N messages")
    add(
        "--max-memory",
        dest="max_memory_mb",
        type=count,
        metavar="MB",
        help="exit when the process uses more memory; with --processes, it is replaced",
    )
    add(
        "--shutdown-timeout",
        type=seconds,
        default=30.0,
        metavar="S",
        help="seconds to wait for running handlers after TERM (30)",
    )
    add("--reload", action="store_true", help="restart when code changes (for development)")
    add(
        "--ignore-other-machines",
        action="store_true",
        help="start even if a worker on another machine is registered",
    )
    add(
        "--no-reaper",
        dest="reaper",
        action="store_false",
        help="run no reaper in this worker; use runreaper",
    )
    add(
        "--metrics-port",
        type=count,
        metavar="PORT",
        help="serve metrics for Prometheus on this port",
    )
    add(
        "--metrics-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address for --metrics-port, 0.0.0.0 for all (127.0.0.1)",
    )
    add_skip_checks(parser)


def run_worker_command(options: Options, check: Callable[..., None]) -> None:
    """Run a worker until a signal stops it; `check` runs the system checks."""
    from django_mqlite.worker import launch  # noqa: PLC0415 - other commands do not need it

    configure_default_logging()
    if options["reload"] and options["processes"] > 1:
        raise CommandError("--reload runs one process: leave out --processes.")
    shutdown = Shutdown()
    with as_command_error(ArgumentTypeError), shutdown_on_signals(shutdown):
        handlers = get_handlers()
        using = options["database"] or queue_alias()
        check_writable(using)
        if not options["skip_checks"]:
            with checking(using):
                check(databases=[using])
        all_schedules()  # raises what is wrong with a schedule before a process is started
        # call_command() passes options without parsing them.
        included, excluded = map(queue_names, (options["queues"], options["exclude"]))
        queues = served_queues(using, handlers, included, excluded)
        worker = WorkerOptions(
            using=using,
            queues=queues,
            round_robin=not included,
            **{name: options[name] for name in OPTIONS},
        )
        if not options["ignore_other_machines"]:
            launch.wait_for_other_machine(using, shutdown)
        if options["metrics_port"]:
            _serve_metrics(using, options["metrics_host"], options["metrics_port"])
        if options["reload"]:
            code = launch.run_reloading(worker, handlers, shutdown)
        else:
            code = launch.run_worker(worker, handlers, shutdown, processes=options["processes"])
    if code:
        sys.exit(code)


def _serve_metrics(using: str, host: str, port: int) -> None:
    """Serve the metrics from a thread; it ends with the process."""
    from django_mqlite.http.metrics import serve  # noqa: PLC0415 - needs the extra [metrics]

    try:
        serve(using, host=host, port=port)
    except (OSError, OverflowError) as error:
        raise CommandError(f"Cannot serve metrics on {host}:{port}: {error}.") from error


OPTIONS = ("threads", "burst", "max_messages", "max_memory_mb", "shutdown_timeout", "reaper")
"""The options that are passed to WorkerOptions unchanged."""


def _worker(options: Options, output: Output) -> None:
    run_worker_command(options, BaseCommand().check)


SUBCOMMANDS = (
    Subcommand(
        "worker",
        "Run a worker, as `manage.py runworker` does.",
        _worker,
        add_worker_arguments,
        "mqlite worker --queues emails --threads 8",
        prints_json=False,
    ),
)
