"""One process of a worker: a consumer with its pool, a lease keeper, and a reaper."""

import logging
from collections.abc import Mapping

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


def run_child(options: WorkerOptions, handlers: Mapping[str, Handler], stop: Stop) -> bool:
    """Work until asked to stop, to the quota, or in a burst until idle.

    Whether every handler came to its end; if not, their messages have been given back and their
    threads still run.
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
    clean = consumer.run()
    keeper.stop()
    pool.close()
    logger.info("worker %s stops after %d messages", options.name, consumer.claimed)
    return clean
