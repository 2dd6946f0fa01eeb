"""A process that claims, settles, renews, forgets and reaps until no message is left.

It logs each lease with its beginning and its end, one JSON object a line, for the oracle.
"""

import json
import logging
import random
import sys
import time
from typing import Any

import django
from django.db import OperationalError

PATIENCE = 120.0
WAYS = {"complete": 70, "abandon": 10, "abandon later": 5, "renew": 10, "forget": 5}


class Claimer:
    def __init__(self, name: str, queues: list[str]) -> None:
        self.name = name
        self.queues = queues
        self.chance = random.Random(name)
        self.notes: list[dict[str, Any]] = []

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.turn():
            assert time.monotonic() < deadline, "messages are left"

    def turn(self) -> bool:
        """Return whether there may be something left to do."""
        from django_mqlite.models import Message  # noqa: PLC0415 - after setup
        from tests.support.verbs import activate, reap  # noqa: PLC0415

        try:
            reap()
            activate()
            for queue in self.queues:
                limit = self.chance.choice([1, 1, 3, 8])
                for message in Message.objects.claim(
                    queue, limit=limit, lock_duration=0.05, worker=self.name
                ):
                    self.handle(message)
            return Message.objects.exists()
        except OperationalError as error:
            if "locked" not in str(error):
                raise
            return True  # another process had the lock for too long; nothing was done

    def handle(self, message: Any) -> None:
        (way,) = self.chance.choices(list(WAYS), list(WAYS.values()))
        if way == "renew":
            type(message).objects.renew_many([message], 0.1)
        # The lease is ours until here at least, and until its deadline at most.
        let_go_at = time.time_ns() // 1_000_000
        settled = self.settle(message, way)
        until = round(message.locked_until.timestamp() * 1_000)
        self.notes.append(
            {
                "id": message.pk,
                "line": message.line and f"{message.queue} {message.line}",
                "delivery": message.delivery_count,
                "token": message.lock_token,
                "way": way,
                "settled": settled,
                "from": round(message.locked_at.timestamp() * 1_000),
                "until": min(let_go_at, until) if settled else until,
            }
        )

    def settle(self, message: Any, way: str) -> bool:
        from django_mqlite import LockLost  # noqa: PLC0415 - after setup

        try:
            if way in ("complete", "renew"):
                message.complete()
            elif way == "forget":
                return False
            else:
                message.abandon(delay=0.02 if way == "abandon later" else 0)
        except (LockLost, OperationalError):
            return False
        return True


def main(name: str, log: str, *queues: str) -> None:
    django.setup()
    logging.disable()
    claimer = Claimer(name, list(queues))
    print("ready", flush=True)
    sys.stdin.readline()
    claimer.run()
    with open(log, "w", encoding="utf-8") as file:  # noqa: PTH123 - not the database
        file.writelines(json.dumps(note) + "\n" for note in claimer.notes)


if __name__ == "__main__":
    main(*sys.argv[1:])
