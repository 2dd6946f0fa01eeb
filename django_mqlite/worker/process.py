"""One process of a worker: a consumer with its pool, a lease renewer, and a reaper."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from django.db import Error
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..guard import get_logger
from ..handlers import Handler
from ..models import Message, Queue
from .consumer import Consumer
from .event_loop import EventLoop
from .executor import Executor
from .leases import LeaseRenewer
from .options import WorkerOptions
from .pool import Pool
from .reaper import Reaper
from .registry import Entry
from .shutdown import Shutdown
from .wakeup import Wakeup
from .watchdogs import watched


@contextmanager
def burst_progress(
    using: str, queues: Sequence[str], *, wanted: bool
) -> Iterator[Callable[[int], None]]:
    """Yields what is told of each claim how many messages it took; shows nothing in a pipe."""
    if not wanted or not sys.stdout.isatty():
        yield lambda count: None
        return
    stats = Queue.objects.db_manager(using).stats()
    waiting = sum(queue.counts["active"] for queue in stats if queue.queue in queues)
    columns = (TextColumn("messages"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("", total=waiting)
        yield lambda count: progress.advance(task, count)


logger = get_logger("django_mqlite.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a worker process came to its end: how many handlers still run, and what it died of."""

    running: int = 0
    error: Error | None = None
    failed: bool = False

    @property
    def code(self) -> int:
        """The exit code: not 0 where a process manager should see that something was wrong."""
        return 1 if self.error or self.failed else 0


def run_child(options: WorkerOptions, handlers: Mapping[str, Handler], stop: Shutdown) -> Ended:
    """Work until asked to stop, to the quota, or in a burst until idle.

    Handlers that still run in the end have had their time; their messages have been given back.
    """
    wakeup = Wakeup(options.using)
    stop.on_request(wakeup.notify)
    executor = Executor(handlers=handlers, using=options.using)
    pool = _pool(options, executor, wakeup, stop)
    keeper = _keeper(options, handlers, pool, stop)
    keeper.start()
    entry = Entry(options)
    consumer = Consumer(
        options,
        pool=pool,
        wakeup=wakeup,
        stop=stop,
        reaper=Reaper(options.using) if options.reaper else None,
        entry=entry,
        keeper=None if options.supervised else keeper,
    )
    error = None
    try:
        with (
            watched(options.using, stop),
            burst_progress(options.using, options.queues, wanted=options.burst) as advance,
        ):
            logger.info("worker %s serves %s", options.name, ", ".join(options.queues))
            consumer.on_claimed = advance
            consumer.run()
    except Error as caught:
        error = caught
    finally:
        keeper.stop()
        pool.close()
        executor.surroundings.close()
        wakeup.close()
        with contextlib.suppress(Error):  # whoever reads a stale entry can tell
            entry.remove()
    logger.info("worker %s stops after %d messages", options.name, consumer.claimed)
    failed = stop.failed or consumer.had_no_room
    return Ended(running=len(pool.running), error=error, failed=failed)


def _pool(options: WorkerOptions, executor: Executor, wakeup: Wakeup, stop: Shutdown) -> Pool:
    loop = EventLoop(
        executor.run_async,
        new_context=executor.surroundings.new_context,
        on_stopped=partial(stop.request, failed=True),
    )
    return Pool(
        executor.run,
        threads=options.threads,
        on_finished=wakeup.notify,
        is_async=executor.is_async,
        loop=loop,
    )


def _keeper(
    options: WorkerOptions, handlers: Mapping[str, Handler], pool: Pool, stop: Shutdown
) -> LeaseRenewer:
    """In a supervised process a handler that has had its time is the supervisor's affair.

    But for coroutines: only its own process can cancel one.
    """
    limits = {
        queue: handler.timeout_ms
        for queue, handler in handlers.items()
        if handler.timeout_ms and (handler.is_async or not options.supervised)
    }

    def recycle(message: Message) -> None:
        logger.error("message #%s of %s is stuck; the worker ends", message.pk, message.queue)
        stop.request(failed=True)

    return LeaseRenewer(
        options.using,
        pool,
        timeout_ms=limits,
        on_stuck=None if options.supervised else recycle,
        on_failed=partial(stop.request, failed=True),
    )
