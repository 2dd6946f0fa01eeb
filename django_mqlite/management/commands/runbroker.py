"""manage.py runbroker: serve the queues over HTTP until a signal stops it."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connections

from django_mqlite.checks import checking, queue_alias
from django_mqlite.guard import get_logger
from django_mqlite.logs import configure_default_logging
from django_mqlite.management.cli.arguments import add_database, add_skip_checks, count
from django_mqlite.management.cli.command import ShellCommand
from django_mqlite.management.cli.output import as_command_error
from django_mqlite.worker.dispatcher import Dispatcher
from django_mqlite.worker.reaper import Reaper
from django_mqlite.worker.shutdown import Shutdown, shutdown_on_signals
from django_mqlite.worker.watchdogs import check_writable, watched

logger = get_logger("django_mqlite.http")

PORT = 6754


class Command(ShellCommand):
    help = (
        "Serve the queues over HTTP to programs that are not Django, and run a reaper. TERM or INT "
        "ends requests that wait for messages and lets the others finish."
    )
    # handle() runs the checks after acquiring the write lock, because they report wrong errors on a
    # locked database.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
        add(
            "--port",
            type=partial(count, maximum=65_535),
            default=PORT,
            metavar="N",
            help=f"port to listen on ({PORT})",
        )
        add(
            "--tokens-file",
            type=Path,
            metavar="FILE",
            help="file with one root token per line, besides those of MQLITE_TOKENS",
        )
        add(
            "--open",
            action="store_true",
            help="require no access key; only on a loopback address",
        )
        add(
            "--no-reaper",
            dest="reaper",
            action="store_false",
            help="run no reaper in this process; use runreaper or a worker",
        )
        add_database(parser)
        add_skip_checks(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        configure_default_logging()
        shutdown = Shutdown()
        with as_command_error():
            # Not before the extra is needed, so that `manage.py help` works without it.
            from django_mqlite.http.asgi import MqliteBroker  # noqa: PLC0415
            from django_mqlite.http.broker import Broker  # noqa: PLC0415
            from django_mqlite.http.keys import configured_keyring  # noqa: PLC0415
            from django_mqlite.http.server import Server  # noqa: PLC0415

            using = options["database"] or queue_alias()
            check_writable(using)
            if not options["skip_checks"]:
                with checking(using):
                    self.check()
            keyring = configured_keyring(using, options["tokens_file"], is_open=options["open"])
            _check_access(keyring.is_open, keyring.has_keys, options["host"])
            broker = Broker.configured(using=using, keyring=keyring)
            server = Server(
                MqliteBroker(broker=broker), shutdown, host=options["host"], port=options["port"]
            )
            # A reaper watches the files of the database itself.
            beside = _reaper_beside if options["reaper"] else watched
            with shutdown_on_signals(shutdown), beside(using, shutdown):
                server.run_until_shutdown()
        if shutdown.failed:
            sys.exit(1)


def _check_access(is_open: bool, has_keys: bool, host: str) -> None:
    if is_open and not _is_loopback(host):
        raise CommandError(
            f"A broker without access keys listens on a loopback address only, not on {host}."
        )
    if not is_open and not has_keys:
        raise CommandError(
            "There is no access key and no token, so no program could use the broker. Create a key "
            "with `manage.py mqlite keys create`, set MQLITE_TOKENS, or pass --open to allow every "
            "program on this machine."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _reaper_beside(using: str, shutdown: Shutdown) -> Iterator[None]:
    """Run a reaper in a thread inside the block; if it fails, shut down."""
    reaper = Reaper(using, Dispatcher.of_project(using))
    thread = Thread(target=_run, args=(reaper, shutdown), name="mqlite-reaper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        shutdown.request()
        thread.join()


def _run(reaper: Reaper, shutdown: Shutdown) -> None:
    try:
        reaper.run(shutdown)
    except Error:
        logger.exception("the reaper failed; the broker is shutting down")
        shutdown.request(failed=True)
    finally:
        connections.close_all()
