"""The writer: one thread that commits the writes of many requests together.

A commit waits for the disk, so requests that arrive during one commit share the next. Each has a
savepoint of its own, and is answered only after the commit.
"""

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from django.db import connections, transaction

from ..guard import get_logger
from ..transactions import group_commit
from ..verbs.base import runs_foreign_code

logger = get_logger("django_mqlite.http")

MAX_GROUP = 128
MAX_GROUP_SECONDS = 0.05
"""The limits of a group, because other processes wait for the write lock meanwhile."""


class Job:
    """A write, and its result or its error once it has been committed."""

    __slots__ = ("call", "canceled", "error", "future", "result")

    def __init__(self, call: Callable[[], Any], future: Any) -> None:
        self.call = call
        self.future = future
        self.canceled = False
        self.result: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        """Call the write, in transactions of its own or in the open one."""
        self.result = self.error = None
        try:
            self.result = self.call()
        except Exception as error:  # noqa: BLE001 - the answer of this request only
            self.error = error


class Writer:
    """Run jobs in one thread on one connection. `deliver` gets the jobs of each commit."""

    def __init__(self, using: str, deliver: Callable[[Sequence[Job]], None]) -> None:
        self._using = using
        self._deliver = deliver
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="mqlite-http-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Run the job soon; jobs are started in the order in which they are submitted."""
        self._jobs.put(job)

    def close(self) -> None:
        """Run what was submitted, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                done = self._commit(job)
                self._deliver(done)
        finally:
            connections.close_all()

    def _commit(self, first: Job) -> list[Job]:
        """Run the first job and those that have arrived since; return them after the commit."""
        jobs = [first]
        if self._jobs.empty() or runs_foreign_code():
            _run_alone(jobs)
            return jobs
        is_open = False
        try:
            with group_commit(self._using):
                is_open = True
                self._run_group(jobs)
        except Exception as error:  # noqa: BLE001 - nothing of the group was committed
            if is_open:
                logger.warning("a group of writes is repeated one by one: %s", error)
                _run_alone(jobs)
            else:
                jobs += self._waiting()
                for job in jobs:
                    job.error = error
        return jobs

    def _run_group(self, jobs: list[Job]) -> None:
        """Run the job in the list, and add and run those that wait."""
        ends_at = time.monotonic() + MAX_GROUP_SECONDS
        job: Job | None = jobs[0]
        while job is not None:
            if not job.canceled:
                self._run_in_savepoint(job)
            if len(jobs) == MAX_GROUP or time.monotonic() > ends_at:
                return
            job = self._next()
            if job is not None:
                jobs.append(job)

    def _run_in_savepoint(self, job: Job) -> None:
        job.result = job.error = None
        try:
            with transaction.atomic(self._using):
                job.result = job.call()
        except Exception as error:
            if connections[self._using].needs_rollback:
                raise
            job.error = error

    def _waiting(self) -> list[Job]:
        """Return the jobs that wait; without the write lock, none of them would succeed sooner."""
        jobs = []
        while (job := self._next()) is not None:
            jobs.append(job)
        return jobs

    def _next(self) -> Job | None:
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:
            self._jobs.put(None)  # the thread ends after this group
        return job


def _run_alone(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if not job.canceled:
            job.run()
