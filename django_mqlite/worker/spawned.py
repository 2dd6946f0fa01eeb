"""The entry point of a process that the supervisor spawns. Must not import models."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from threading import Thread

from ..logs import configure_default_logging, flush_streams
from .options import WorkerOptions, worker_name
from .shutdown import Shutdown, ignore, shutdown_on_signals


def work(options: WorkerOptions, unique: str) -> None:
    """Run a worker process until the supervisor terminates it or ends.

    `unique` is the last part of the worker's name. The supervisor chooses it, so that it knows the
    name as soon as it knows the pid.
    """
    # Ctrl-C reaches the whole process group; the supervisor handles it and terminates this process.
    ignore(signal.SIGINT)
    # Handlers use the start method of the platform, not the one the supervisor used.
    multiprocessing.set_start_method(None, force=True)
    import django  # noqa: PLC0415 - not needed before

    django.setup()
    from ..handlers import get_handlers  # noqa: PLC0415 - after setup
    from .process import run_worker_process  # noqa: PLC0415 - after setup

    configure_default_logging()
    shutdown = Shutdown()
    # A process manager may send TERM to the whole group, and the supervisor sends another.
    with shutdown_on_signals(shutdown, [signal.SIGTERM], insist=False):
        Thread(target=_watch_parent, args=(shutdown.request,), daemon=True).start()
        options = replace(options, name=worker_name(unique=unique))
        result = run_worker_process(options, get_handlers(), shutdown)
        flush_streams()
        os._exit(result.code)  # a running handler would keep the interpreter from exiting


def _watch_parent(request_shutdown: Callable[[], None]) -> None:
    """Request shutdown when the supervisor has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        request_shutdown()
