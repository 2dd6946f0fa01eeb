"""Starting of a worker: in this process, in several, or with a reload when the code changes."""

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
    options: WorkerOptions, handlers: Mapping[str, Handler], stop: Shutdown, *, processes: int = 1
) -> int:
    """Work until asked to stop; the exit code. Leaves at once where a handler still runs then.

    Raises what the database failed with when there was no more hope.
    """
    if processes > 1:
        return Supervisor(options, handlers, stop, processes=processes).run()
    return _exit_code(run_worker_process(options, handlers, stop), stop)


def _exit_code(ended: ProcessResult, stop: Shutdown) -> int:
    if ended.running:
        # Handlers that did not end would keep the interpreter from ending, or crash it.
        if ended.error:
            logger.error("the worker ends: %s (%s)", ended.error, advice(ended.error))
        stop.leave(ended.code)
    if ended.error:
        raise ended.error
    return ended.code


def run_reloading(options: WorkerOptions, handlers: Mapping[str, Handler], stop: Shutdown) -> int:
    """For development: when a file of the project changes, drain and start anew in this process.

    The worker stays on the main thread, where signals arrive; only the watch is in another.
    """
    changed, directory = Shutdown(), Path.cwd()
    reloader = autoreload.StatReloader()
    seen = dict(reloader.snapshot_files())  # before anybody is told that we serve, and edits
    Thread(
        target=_watch_files, args=(reloader, seen, changed, stop), name="mqlite-reload", daemon=True
    ).start()
    ended = run_worker_process(options, handlers, stop)
    if changed.requested:
        logger.info("code has changed; starting anew")
        os.chdir(directory)  # a handler may have left it, and the command line is relative to it
        os.execv(sys.executable, autoreload.get_child_arguments())  # noqa: S606 - as we were started
    return _exit_code(ended, stop)


def _watch_files(
    reloader: autoreload.StatReloader, seen: dict[Path, float], changed: Shutdown, stop: Shutdown
) -> None:
    while not stop.wait(reloader.SLEEP_TIME):
        now = dict(reloader.snapshot_files())
        if any(seen.get(path, mtime) != mtime for path, mtime in now.items()):
            changed.request()
            stop.request()
        seen = {**seen, **now}


def wait_for_other_machine(using: str, stop: Shutdown) -> None:
    """Wait while a worker of another machine is alive on the file: the two would corrupt it.

    SQLite's locks do not reach from one machine to another. A registration is over a minute after
    its last sign of life.
    """
    told = False
    while (other := other_machine(using)) is not None:
        if not told:
            logger.error(
                "worker %s of another machine (%s) uses this file; waiting till it is gone. SQLite "
                "cannot be shared by machines; if it is not, say --ignore-other-machines",
                other.worker,
                other.host,
            )
            told = True
        if stop.wait(1.0):
            return
