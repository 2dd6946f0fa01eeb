"""One process of a worker: a consumer with its pool, a lease renewer, and a reaper."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from django.db import Error

from ..guard import get_logger
from ..handlers import Handler
from ..models import Message, Queue
from .consumer import Consumer
from .dispatcher import Dispatcher
from .event_loop import EventLoop
from .executor import Executor
from .leases import LeaseRenewer
from .options import WorkerOptions
from .pool import Pool
from .progress import progress_bar
from .reaper import Reaper
from .registry import WorkerEntry
from .shutdown import Shutdown
from .wakeup import Wakeup
from .watchdogs import watched

logger = get_logger("django_mqlite.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """The result of a worker process: the handlers still running, and the error that ended it."""

    running: int = 0
    error: Error | None = None
    failed: bool = False

    @property
    def code(self) -> int:
        """The exit code: 1 if the process failed."""
        return 1 if self.error or self.failed else 0


def run_worker_process(
    options: WorkerOptions, handlers: Mapping[str, Handler], shutdown: Shutdown
) -> ProcessResult:
    """Run a worker until shutdown, until its quota is used up, or in a burst until idle.

    Messages whose handlers are still running after the shutdown timeout have been released.
    """
    wakeup = Wakeup(options.using)
    shutdown.on_request(wakeup.notify)
    executor = Executor(handlers=handlers, using=options.using)
    pool = _pool(options, executor, wakeup, shutdown)
    renewer = _renewer(options, handlers, pool, shutdown)
    renewer.start()
    entry = WorkerEntry(options)
    consumer = Consumer(
        options,
        pool=pool,
        wakeup=wakeup,
        shutdown=shutdown,
        reaper=_reaper(options),
        entry=entry,
        renewer=None if options.supervised else renewer,
    )
    error = None
    try:
        with (
            watched(options.using, shutdown, supervised=options.supervised),
            _burst_progress(options) as show_claimed,
        ):
            logger.info("worker %s serves %s", options.name, ", ".join(options.queues))
            consumer.on_claimed = show_claimed
            consumer.run()
    except Error as caught:
        error = caught
    finally:
        renewer.stop()
        pool.close()
        executor.contexts.close()
        wakeup.close()
        with contextlib.suppress(Error):  # stale entries are recognized by their age
            entry.remove()
    logger.info("worker %s stopped after %d messages", options.name, consumer.claimed)
    failed = shutdown.failed or consumer.started_over_memory_limit
    return ProcessResult(running=len(pool.running), error=error, failed=failed)


def _reaper(options: WorkerOptions) -> Reaper | None:
    if not options.reaper:
        return None
    return Reaper(options.using, Dispatcher.of_project(options.using))


def _burst_progress(options: WorkerOptions) -> AbstractContextManager[Callable[[int], None]]:
    """Show on a terminal how many of the messages that wait at the start of a burst are claimed."""
    shown = options.burst and sys.stdout.isatty()
    stats = Queue.objects.db_manager(options.using).stats() if shown else []
    waiting = sum(queue.counts["active"] for queue in stats if queue.queue in options.queues)

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    return progress_bar(write, "messages", waiting, shown=shown)


def _pool(options: WorkerOptions, executor: Executor, wakeup: Wakeup, shutdown: Shutdown) -> Pool:
    loop = EventLoop(
        executor.run_async,
        new_context=executor.contexts.new_context,
        on_broken=partial(shutdown.request, failed=True),
    )
    return Pool(
        executor.run,
        threads=options.threads,
        on_finished=wakeup.notify,
        is_async=executor.is_async,
        loop=loop,
    )


def _renewer(
    options: WorkerOptions, handlers: Mapping[str, Handler], pool: Pool, shutdown: Shutdown
) -> LeaseRenewer:
    """Return the lease renewer, which also enforces timeouts.

    In a supervised process it only cancels coroutines and marks leases as lost; the supervisor
    kills the process after a grace period.
    """
    limits = {queue: h.timeout_ms for queue, h in handlers.items() if h.timeout_ms is not None}

    def shut_down(message: Message) -> None:
        logger.error(
            "message #%s of %s is stuck; the worker is shutting down", message.pk, message.queue
        )
        shutdown.request(failed=True)

    def end_process(message: Message) -> None:
        logger.warning(
            "message #%s of %s was discarded and its handler has not ended; this process is "
            "ending and will be replaced",
            message.pk,
            message.queue,
        )
        pool.give_up(message)
        shutdown.request()

    return LeaseRenewer(
        options.using,
        pool,
        timeout_ms=limits,
        on_stuck=None if options.supervised else shut_down,
        on_discarded=end_process if options.supervised else None,
        on_failed=partial(shutdown.request, failed=True),
    )
