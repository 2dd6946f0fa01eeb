"""The entry point of a process that the supervisor spawns. Imports no models."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from threading import Thread

from .options import WorkerOptions, worker_name
from .shutdown import Shutdown, ignore, shutdown_on_signals


def work(options: WorkerOptions, unique: str) -> None:
    """Be a worker process until the supervisor asks to stop, or is gone.

    `unique` is the part of its name that the supervisor knows beforehand; the pid is the other.
    """
    # Ctrl-C goes to the whole group of processes; the supervisor says what it means.
    ignore(signal.SIGINT)
    # Handlers start processes as this platform does, not as the supervisor has started this one.
    multiprocessing.set_start_method(None, force=True)
    import django  # noqa: PLC0415 - a spawned process begins with nothing set up

    django.setup()
    from ..handlers import get_handlers  # noqa: PLC0415 - after setup
    from ..logs import configure_default_logging  # noqa: PLC0415 - after setup
    from .process import run_worker_process  # noqa: PLC0415 - after setup

    configure_default_logging()
    stop = Shutdown()
    # A process manager may send TERM to each process of the group, beside the supervisor's.
    with shutdown_on_signals(stop, [signal.SIGTERM], insist=False):
        Thread(target=_watch_parent, args=(stop.request,), daemon=True).start()
        named = replace(options, name=worker_name(unique=unique))
        ended = run_worker_process(named, get_handlers(), stop)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code)  # a handler that still runs would keep the interpreter from ending


def _watch_parent(request_stop: Callable[[], None]) -> None:
    """Nobody would replace or stop this process any more: drain and end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        request_stop()
