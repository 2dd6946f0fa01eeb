"""The example project: a server and workers on a database file of their own."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import Permission, User
from django.db import connections

from django_mqlite import timing
from django_mqlite.models import DeadLetter, Message, Queue
from django_mqlite.types import WorkerRecord
from django_mqlite.verbs.workers import register, unregister
from example_project.processes import Child, Processes
from tests.support.verbs import tallies
from tests.support.waiting import wait_until

ALIAS = "shop"
QUEUE = "order-events"
PASSWORD = "browser"
UNKNOWN_ORDER = 10**6
"""An order that does not exist, so that its message is rejected at once."""

COPY_DEAD_LETTER = """
INSERT INTO mqlite_messages (queue, state, enqueued_at, body, finished_at, dead_letter_reason)
SELECT queue, state, enqueued_at, body, finished_at, dead_letter_reason
  FROM mqlite_messages,
       (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT %s)
        SELECT value FROM n)
"""


@dataclass(kw_only=True)
class Site:
    """The URL of the server, and the test's own connection to its database."""

    url: str
    processes: Processes
    sessions: dict[str, list[Any]] = field(default_factory=dict)
    """Cookies of the users who have logged in, by name."""

    # People

    def make_superuser(self) -> str:
        return self._make_user("boss", is_superuser=True).username

    def make_staff(self, *codenames: str) -> str:
        """Create a staff user who has only these permissions of the app."""
        user = self._make_user("clerk")
        own = Permission.objects.using(ALIAS).filter(content_type__app_label="django_mqlite")
        user.user_permissions.set(own.filter(codename__in=codenames))
        return user.username

    def _make_user(self, name: str, **options: Any) -> User:
        users = User.objects.using(ALIAS)
        if (user := users.filter(username=name).first()) is not None:
            return user
        # The hasher of the project, which does not have the hasher of the tests.
        password = PBKDF2PasswordHasher().encode(PASSWORD, "salt")
        return users.create(username=name, password=password, is_staff=True, **options)

    # Messages

    def enqueue(self, data: Any = None, **options: Any) -> Message:
        body = {"order": UNKNOWN_ORDER} if data is None else data
        options.setdefault("group_id", "customer-7")
        return Message.objects.db_manager(ALIAS).enqueue(QUEUE, body, **options)

    def dead_letters(self, count: int, **options: Any) -> list[Message]:
        """Create dead letters without a worker."""
        messages = [self.enqueue(**options) for _ in range(count)]
        for _ in messages:
            (claimed,) = Message.objects.db_manager(ALIAS).claim(QUEUE, worker="elsewhere")
            claimed.reject("UnknownOrder", f"there is no order {claimed.data['order']}")
        return messages

    def many_dead_letters(self, count: int) -> None:
        """Create dead letters in one statement, as copies of the first."""
        self.dead_letters(1)
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(COPY_DEAD_LETTER, [count - 1])

    def busy_hour(self) -> None:
        """Count an hour of deliveries as a worker that has ended, with failures in the middle."""
        last = timing.now_ms() // 60_000
        minutes = [(last - ago, abs(30 - ago) + ago % 7, 9 * (24 < ago < 31)) for ago in range(60)]
        record = WorkerRecord(
            worker="gone",
            host="gone",
            boot_id="",
            pid_namespace=0,
            pid=0,
            process_started_at=0.0,
            queues=(),
            slots=0,
            in_flight=0,
            started_at=0,
        )
        register(ALIAS, record, tallies(QUEUE, *minutes))
        unregister(ALIAS, record.worker)

    def claim(self, **options: Any) -> Message:
        (message,) = Message.objects.db_manager(ALIAS).claim(QUEUE, **options)
        return message

    def state(self, message: Message) -> str:
        messages = Message.objects.using(ALIAS).filter(pk=message.pk)
        return messages.values_list("state", flat=True).first() or "gone"

    def count(self, state: str) -> int:
        return Message.objects.using(ALIAS).filter(state=state).count()

    def wait_dead(self, count: int = 1) -> DeadLetter:
        """Wait until there are `count` dead letters, and return the last."""
        dead = Message.objects.using(ALIAS).filter(state="dead_lettered")
        wait_until(lambda: dead.count() >= count, f"{count} dead letters")
        return dead.order_by("-finished_at", "-pk").first()

    def correct_cards(self) -> None:
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("UPDATE shop_order SET card = 'valid'")

    # Processes

    @contextmanager
    def worker(self) -> Iterator[Child]:
        """Run a worker process inside the block."""
        worker = self.processes.start("worker", "example_project.manage", "runworker")
        wait_until(lambda: " serves " in worker.output() or not worker.is_running, "the worker")
        assert worker.is_running, worker.output()
        yield worker
        self._end(worker)

    def _end(self, worker: Child) -> None:
        worker.popen.terminate()
        assert worker.popen.wait(timeout=30) == 0, worker.output()
        self.processes.forget(worker)

    def clear(self) -> None:
        """Delete all messages and resume all queues."""
        Message.objects.using(ALIAS).all().delete()
        for queue in Queue.objects.using(ALIAS):
            queue.resume()


@contextmanager
def running_site(directory: Path) -> Iterator[Site]:
    """Run the server on a new database; all processes end with the block."""
    path = directory / "shop.sqlite3"
    os.environ["SHOP_DATABASE"] = str(path)
    os.environ["DJANGO_SETTINGS_MODULE"], before = (
        "example_project.settings",
        os.environ["DJANGO_SETTINGS_MODULE"],
    )
    connections.settings[ALIAS] = {**connections.settings["default"], "NAME": str(path)}
    try:
        with Processes(log_directory=directory) as processes:
            migrate = processes.start("migrate", "example_project.manage", "migrate")
            assert migrate.popen.wait(60) == 0, migrate.output()
            processes.forget(migrate)
            server = processes.start("server", "example_project.web", "--port", "0")
            url = wait_until(lambda: _address(server), "the server to open")
            yield Site(url=url, processes=processes)
    finally:
        connections[ALIAS].close()
        del connections[ALIAS], connections.settings[ALIAS]
        os.environ["DJANGO_SETTINGS_MODULE"] = before
        del os.environ["SHOP_DATABASE"]


def _address(server: Child) -> str:
    address = re.search(r"serving (http://127\.0\.0\.1:\d+)/", server.output())
    return address[1] if address else ""
