"""The floor: the store's statements through the bare driver, on the same file, without Django."""

import json
import re
import secrets
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from django.db import connection

from django_mqlite.store.sqlite import claim, enqueue, settle
from django_mqlite.store.sqlite.base import Statement
from django_mqlite.types import NewMessage

NAMED = re.compile(r"%\((\w+)\)s")


def bare(statement: Statement) -> str:
    """Return the statement in the driver's parameter style."""
    return NAMED.sub(r":\1", statement.sql).replace("%%", "%")


ENQUEUE = bare(enqueue.ENQUEUE)
ENQUEUE_MANY = bare(enqueue.ENQUEUE_MANY)
CLAIM = bare(claim.CLAIM)
COMPLETE = bare(settle.COMPLETE)
WRITE_RECEIPTS = bare(settle.WRITE_RECEIPTS)

NO_OPTIONS = dict.fromkeys(
    ("message_id", "correlation_id", "reply_to", "group_id", "subject", "properties")
)

BareLease = tuple[int, str, str]
"""Id, token and queue."""


class Floor:
    """The work of the managers, with the minimum of code around the statements."""

    def __init__(self) -> None:
        name = connection.settings_dict["NAME"]
        self._driver: Any = connection.Database.connect(name, isolation_level=None, timeout=5)
        self._driver.execute("PRAGMA foreign_keys = ON")

    def synchronous(self, level: str) -> None:
        self._driver.execute(f"PRAGMA synchronous = {level}")

    def close(self) -> None:
        self._driver.close()

    @contextmanager
    def _transaction(self) -> Any:
        self._driver.execute("BEGIN IMMEDIATE")
        yield
        self._driver.execute("COMMIT")

    def enqueue(self, queue: str, body: bytes) -> None:
        now = now_ms()
        values = {
            **NO_OPTIONS,
            "queue": queue,
            "now": now,
            "visible_at": now,
            "deduplicated": False,
            "ttl": 0,
            "priority": 0,
            "max_delivery_count": 0,
            "content_type": "application/octet-stream",
            "body": body,
        }
        self._driver.execute(ENQUEUE, values).fetchall()

    def enqueue_many(self, queue: str, bodies: list[bytes]) -> None:
        now, start, drafts = now_ms(), 1, []
        for body in bodies:
            new = NewMessage(queue=queue, body=body, content_type="application/octet-stream")
            drafts.append(enqueue._encoded(new, start, now))  # noqa: SLF001 - the same encoding
            start += len(body)
        values = {"queue": queue, "now": now, "drafts": json.dumps(drafts)}
        with self._transaction():
            self._driver.execute(ENQUEUE_MANY, {**values, "bodies": b"".join(bodies)}).fetchall()

    def claim(self, queue: str, limit: int) -> list[BareLease]:
        with self._transaction():
            return self._claim(queue, limit)

    def complete(self, leases: list[BareLease]) -> None:
        with self._transaction():
            self._complete(leases)

    def settle_and_claim(self, leases: list[BareLease], queue: str, limit: int) -> list[BareLease]:
        """Complete messages and claim up to `limit` others in one transaction, as a worker does."""
        with self._transaction():
            if leases:
                self._complete(leases)
            return self._claim(queue, limit)

    def _claim(self, queue: str, limit: int) -> list[BareLease]:
        values = {
            "queue": queue,
            "now": now_ms(),
            "limit": limit,
            "secret": secrets.token_hex(16),
            "worker": None,
            "lock_duration": None,
        }
        return [(row[0], row[11], row[1]) for row in self._driver.execute(CLAIM, values).fetchall()]

    def _complete(self, leases: list[BareLease]) -> None:
        now, encoded = now_ms(), json.dumps(leases)
        receipts = {
            "leases": encoded,
            "verb": "complete",
            "arguments": "",
            "expires_at": now + settle.RECEIPT_LIFE_MS,
        }
        completed = self._driver.execute(COMPLETE, {"leases": encoded, "now": now}).fetchall()
        self._driver.execute(WRITE_RECEIPTS, receipts)
        if len(completed) != len(leases):
            raise RuntimeError(f"completed {len(completed)} messages, expected {len(leases)}")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def at_each_level(floor: Floor) -> Any:
    """Yield a function that sets `synchronous` on both connections."""

    def set_level(level: str) -> None:
        floor.synchronous(level)
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA synchronous = {level}")

    try:
        yield set_level
    finally:
        set_level("FULL")
        floor.close()


def repeated(times: int, work: Callable[[], int]) -> Callable[[], int]:
    """Return a function that repeats `work` and returns the total number of messages."""
    return lambda: sum(work() for _ in range(times))
