"""One process of a worker: a consumer with its pool, a lease keeper, and a reaper."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import Error

from ..handlers import Handler
from .consumer import Consumer
from .executor import Executor
from .lease_keeper import LeaseKeeper
from .options import WorkerOptions
from .pool import Pool
from .reaper import Reaper
from .stop import Stop
from .wakeup import Wakeup

logger = logging.getLogger("django_mqlite.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a worker process came to its end: how many handlers still run, and what it died of."""

    running: int = 0
    error: Error | None = None


def run_child(options: WorkerOptions, handlers: Mapping[str, Handler], stop: Stop) -> Ended:
    """Work until asked to stop, to the quota, or in a burst until idle.

    Handlers that still run in the end have had their time; their messages have been given back.
    """
    wakeup = Wakeup(options.using)
    stop.on_request(wakeup.notify)
    executor = Executor(handlers=handlers, using=options.using)
    pool = Pool(executor.run, threads=options.threads, on_finished=wakeup.notify)
    keeper = LeaseKeeper(options.using, pool)
    keeper.start()
    reaper = Reaper(options.using) if options.reaper else None
    consumer = Consumer(options, pool=pool, wakeup=wakeup, stop=stop, reaper=reaper)
    logger.info("worker %s serves %s", options.name, ", ".join(options.queues))
    error = None
    try:
        consumer.run()
    except Error as caught:
        error = caught
    finally:
        keeper.stop()
        pool.close()
        wakeup.close()
    logger.info("worker %s stops after %d messages", options.name, consumer.claimed)
    return Ended(running=len(pool.running), error=error)
