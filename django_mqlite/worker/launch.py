"""Start a worker in one process, in several, or with automatic reloading."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

from django.utils import autoreload

from ..guard import get_logger
from ..handlers import Handler
from .database_errors import advice
from .options import WorkerOptions
from .process import ProcessResult, run_worker_process
from .registry import other_machine
from .shutdown import Shutdown
from .supervisor import Supervisor

logger = get_logger("django_mqlite.worker")


def run_worker(
    options: WorkerOptions,
    handlers: Mapping[str, Handler],
    shutdown: Shutdown,
    *,
    processes: int = 1,
) -> int:
    """Run until shutdown is requested; return the exit code.

    If handlers are still running then, exit the process at once. If the database does not recover,
    raise its error.
    """
    if processes > 1:
        return Supervisor(options, handlers, shutdown, processes=processes).run()
    return _exit_code(run_worker_process(options, handlers, shutdown), shutdown)


def _exit_code(result: ProcessResult, shutdown: Shutdown) -> int:
    if result.running:
        # A running handler would keep the interpreter from exiting, or crash it.
        if result.error:
            logger.error("the worker is exiting: %s (%s)", result.error, advice(result.error))
        shutdown.exit_now(result.code)
    if result.error:
        raise result.error
    return result.code


def run_reloading(
    options: WorkerOptions, handlers: Mapping[str, Handler], shutdown: Shutdown
) -> int:
    """Run a worker for development: when a file of the project changes, drain and restart.

    A signal that arrives during the drain ends the worker.

    The worker runs on the main thread, because signals arrive there; another thread watches files.
    """
    changed, directory = Shutdown(), Path.cwd()
    reloader = autoreload.StatReloader()
    # Taken before the worker logs that it has started, so that no later edit is missed.
    mtimes = dict(reloader.snapshot_files())
    Thread(
        target=_watch_files,
        args=(reloader, mtimes, changed, shutdown),
        name="mqlite-reload",
        daemon=True,
    ).start()
    result = run_worker_process(options, handlers, shutdown)
    if changed.requested and not shutdown.signaled:
        logger.info("code has changed; restarting")
        os.chdir(directory)  # a handler may have changed it, and the command line is relative
        os.execv(sys.executable, autoreload.get_child_arguments())  # noqa: S606 - the original command line
    return _exit_code(result, shutdown)


def _watch_files(
    reloader: autoreload.StatReloader,
    mtimes: dict[Path, float],
    changed: Shutdown,
    shutdown: Shutdown,
) -> None:
    while not shutdown.wait(reloader.SLEEP_TIME):
        current = dict(reloader.snapshot_files())
        if any(mtimes.get(path, mtime) != mtime for path, mtime in current.items()):
            changed.request()
            shutdown.request()
        mtimes = {**mtimes, **current}


def wait_for_other_machine(using: str, shutdown: Shutdown) -> None:
    """Wait while a worker of another machine uses the file, because both would corrupt it.

    SQLite's locks do not work across machines. A registration expires a minute after its last
    heartbeat.
    """
    is_logged = False
    while (other := other_machine(using)) is not None:
        if not is_logged:
            logger.error(
                "worker %s on another machine (%s) uses this database file; waiting until it has "
                "ended. Machines cannot share a SQLite file. If they do not share it, start the "
                "worker with --ignore-other-machines",
                other.worker,
                other.host,
            )
            is_logged = True
        if shutdown.wait(1.0):
            return
