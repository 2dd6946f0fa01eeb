"""A process that enqueues messages with few unique keys, and completes or rejects some of them.

Prints one JSON object: the messages that it stored, those that it found instead, and every error.
"""

import json
import random
import sys
from typing import Any

import django

KEYS = ("a", "b", "c")
ROUNDS = 60


class RolledBack(Exception):
    """Undoes an enqueue."""


class KeyWriter:
    def __init__(self, name: str) -> None:
        self.chance = random.Random(name)
        self.stored: list[int] = []
        self.found: list[int] = []
        self.errors: list[str] = []

    def run(self) -> None:
        ways = [self.enqueue, self.enqueue_and_commit, self.enqueue_and_roll_back]
        ways += [self.enqueue_many, self.settle, self.redrive]
        for _ in range(ROUNDS):
            try:
                self.chance.choice(ways)()
            except Exception as error:  # noqa: BLE001 - the test asks for them
                self.errors.append(repr(error))

    def enqueue(self) -> None:
        from django_mqlite import enqueue  # noqa: PLC0415 - after setup

        self.note(enqueue("jobs", None, unique_key=self.chance.choice(KEYS)))

    def enqueue_and_commit(self) -> None:
        from django.db import transaction  # noqa: PLC0415 - after setup

        with transaction.atomic():
            self.enqueue()
            self.enqueue()

    def enqueue_and_roll_back(self) -> None:
        from django.db import transaction  # noqa: PLC0415 - after setup

        from django_mqlite import enqueue  # noqa: PLC0415 - after setup

        try:
            with transaction.atomic():
                enqueue("jobs", None, unique_key=self.chance.choice(KEYS))
                raise RolledBack
        except RolledBack:
            pass

    def enqueue_many(self) -> None:
        from django_mqlite import Draft, enqueue_many  # noqa: PLC0415 - after setup

        for message in enqueue_many("jobs", [Draft(None, unique_key=key) for key in (*KEYS, "a")]):
            self.note(message)

    def settle(self) -> None:
        from django_mqlite.models import Message  # noqa: PLC0415 - after setup

        for message in Message.objects.claim("jobs", lock_duration=60):
            message.complete() if self.chance.random() < 0.5 else message.reject("Broken")

    def redrive(self) -> None:
        from django_mqlite.models import DeadLetter  # noqa: PLC0415 - after setup

        DeadLetter.objects.redrive_queue("jobs")

    def note(self, message: Any) -> None:
        (self.found if message.duplicate else self.stored).append(message.pk)


def main(name: str) -> None:
    django.setup()
    writer = KeyWriter(name)
    print("ready", flush=True)
    sys.stdin.readline()
    writer.run()
    facts = {"stored": writer.stored, "found": writer.found, "errors": writer.errors}
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
