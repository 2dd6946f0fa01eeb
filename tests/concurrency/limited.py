"""A process that takes messages from limited queues until it is killed: a worker, or its own loop.

No message is ever completed for good, so there is always one to claim.
"""

import logging
import random
import sys
import time
from typing import Any

import django
from django.db import OperationalError


class Claimer:
    """Claim in every way, and settle in every way or not at all."""

    def __init__(self, queues: list[str]) -> None:
        self.queues = queues
        self.deferred: dict[str, list[int]] = {queue: [] for queue in queues}

    def run(self) -> None:
        from tests.support.verbs import reap  # noqa: PLC0415 - after setup

        while True:
            try:
                reap()
                for queue in self.queues:
                    self.turn(queue)
            except OperationalError as error:
                if "locked" not in str(error):
                    raise

    def turn(self, queue: str) -> None:
        from django_mqlite.models import Message  # noqa: PLC0415 - after setup

        if random.random() < 0.3:
            ids, self.deferred[queue] = self.deferred[queue], []
            messages = Message.objects.claim_deferred(queue, ids)
            Message.objects.activate_many(set(ids) - {message.pk for message in messages})
        else:
            messages = Message.objects.claim(queue, limit=random.choice([1, 2, 9]))
        for message in messages:
            time.sleep(random.random() / 200)
            self.settle(message)

    def settle(self, message: Any) -> None:
        from django_mqlite import LockLost  # noqa: PLC0415 - after setup

        way = random.choice(["abandon", "abandon", "defer", "replace", "renew", "forget"])
        try:
            if way == "defer":
                message.defer()
                self.deferred[message.queue].append(message.pk)
            elif way == "replace":
                message.complete()
                type(message).objects.enqueue(message.queue, b"")
            elif way == "renew":
                message.renew()
                message.abandon(delay=0)
            elif way == "abandon":
                message.abandon(delay=0)
        except LockLost:
            pass


def run_worker(queues: list[str]) -> None:
    from django_mqlite import Retry  # noqa: PLC0415 - after setup
    from django_mqlite.handlers import Handler  # noqa: PLC0415
    from django_mqlite.worker.options import WorkerOptions  # noqa: PLC0415
    from django_mqlite.worker.process import run_worker_process  # noqa: PLC0415
    from django_mqlite.worker.shutdown import Shutdown  # noqa: PLC0415

    def handle(message: Any) -> None:
        time.sleep(random.random() / 100)
        raise Retry(delay=0)

    options = WorkerOptions(using="default", queues=tuple(queues), threads=4, round_robin=True)
    handlers = {queue: Handler(queue=queue, function=handle) for queue in queues}
    run_worker_process(options, handlers, Shutdown())


def main(kind: str, *queues: str) -> None:
    django.setup()
    logging.disable()
    if kind == "worker":
        run_worker(list(queues))
    Claimer(list(queues)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
