"""Long polls: requests that wait for a message, woken after one read per commit.

One thread watches the database for all of them. After a commit it reads which queues have claimable
messages and wakes one request of each. A request that gets messages wakes two others, so the number
of claims depends on the number of messages, and not on the number of requests that wait.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable
from threading import Lock, Thread

from django.db import Error, connections

from ..models import Message
from ..worker.database_errors import FIRST_RETRY_DELAY
from ..worker.wakeup import Wakeup

RECHECK_INTERVAL = 1.0
"""Seconds until queues are read without a commit, because a rate limit ends with time."""

IDLE_INTERVAL = 60.0
"""Seconds between two rounds of the thread while no request waits."""

WOKEN_BY_SUCCESS = 2


class Waiter:
    """A request that waits. `wake` is called at most once, from any thread."""

    __slots__ = ("queue", "wake", "woken")

    def __init__(self, queue: str, wake: Callable[[], None]) -> None:
        self.queue = queue
        self.wake = wake
        self.woken = False

    def take_wake(self) -> bool:
        """Return whether the waiter was woken; if so, the caller claims, and no other instead."""
        woken, self.woken = self.woken, False
        return woken


class Polls:
    """The requests that wait for messages, by queue."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._lock = Lock()
        self._waiters: defaultdict[str, deque[Waiter]] = defaultdict(deque)
        self._wakeup: Wakeup | None = None
        self._thread: Thread | None = None
        self.closed = False

    def add(self, waiter: Waiter) -> None:
        """Wait for the next commit. Claim again after this call, so that none is missed."""
        with self._lock:
            if not self.closed:
                self._waiters[waiter.queue].append(waiter)
                self._start()
                return
        waiter.wake()

    def remove(self, waiter: Waiter) -> None:
        """Stop waiting; if the waiter was woken, wake another one instead."""
        with self._lock:
            waiters = self._waiters[waiter.queue]
            if waiter in waiters:
                waiters.remove(waiter)
        if waiter.woken:
            self.wake(waiter.queue)

    def wake(self, queue: str, count: int = 1) -> None:
        """Wake this number of requests of the queue, those that have waited longest first."""
        with self._lock:
            waiters = self._waiters[queue]
            woken = [waiters.popleft() for _ in range(min(count, len(waiters)))]
            if not waiters:
                del self._waiters[queue]
            for waiter in woken:
                waiter.woken = True
        for waiter in woken:
            waiter.wake()

    def wake_after_success(self, queue: str) -> None:
        """Wake the next requests of a queue that had messages, because it may have more."""
        self.wake(queue, WOKEN_BY_SUCCESS)

    def close(self) -> None:
        """Wake every request, and those that come later; end the thread."""
        with self._lock:
            self.closed = True
            woken = [waiter for waiters in self._waiters.values() for waiter in waiters]
            self._waiters.clear()
            wakeup, thread = self._wakeup, self._thread
        for waiter in woken:
            waiter.wake()
        if wakeup is not None and thread is not None:
            wakeup.notify()
            thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._wakeup = Wakeup(self._using)
            self._thread = Thread(
                target=self._watch, args=(self._wakeup,), name="mqlite-http-polls", daemon=True
            )
            self._thread.start()
        elif self._wakeup is not None:
            self._wakeup.notify()

    def _watch(self, wakeup: Wakeup) -> None:
        version, recheck_at = -1, 0.0
        messages = Message.objects.db_manager(self._using)
        try:
            while not self.closed:
                wakeup.wait(wakeup.poll_interval if self._waiters else IDLE_INTERVAL)
                if not self._waiters:
                    continue
                try:
                    current = messages.data_version()
                    if current == version and time.monotonic() < recheck_at:
                        continue
                    claimable = messages.claimable()
                except Error:
                    time.sleep(FIRST_RETRY_DELAY)  # the requests that write report the error
                    continue
                version, recheck_at = current, time.monotonic() + RECHECK_INTERVAL
                for queue in claimable & self._waiters.keys():
                    self.wake(queue)
        finally:
            wakeup.close()
            connections.close_all()
