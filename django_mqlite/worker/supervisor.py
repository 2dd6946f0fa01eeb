"""The supervisor of several worker processes: starts, watches, replaces and stops them.

Children are spawned, never forked: a fork with an open SQLite connection corrupts the file. The
leases of a child are released as soon as it dies.
"""

import multiprocessing
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait

from django.db import Error, connections

from ..guard import get_logger
from ..handlers import Handler
from ..verbs.sweeps import interrupt
from ..verbs.workers import registered_workers, unregister
from .database_errors import DatabaseErrors, advice
from .leases import SupervisedLeases
from .options import WorkerOptions, unique_part, worker_name
from .registry import release_all
from .shutdown import Shutdown
from .spawned import work
from .watchdogs import watched

logger = get_logger("django_mqlite.worker")

STARTUP_PERIOD = 5.0
"""Seconds during which the death of a child counts as a failed start."""

MAX_START_DELAY = 30.0
"""Maximum seconds between two attempts to start a child."""

MAX_FAILED_STARTS = 10
"""Number of consecutive failed starts after which the supervisor exits."""

KILL_AFTER = 5.0
"""Seconds after the shutdown timeout until children that have not exited are killed."""


class Child:
    """A worker process, and the worker name that its leases are held under."""

    def __init__(self, options: WorkerOptions) -> None:
        self.started_at = time.monotonic()
        self.killed = False
        unique = unique_part()
        spawn = multiprocessing.get_context("spawn")
        self.process = spawn.Process(target=work, args=(replace(options, supervised=True), unique))
        self.process.start()
        self.name = worker_name(pid=self.process.pid, unique=unique)

    def kill(self, reason: str) -> None:
        """Kill the process; log the reason the first time."""
        if not self.killed:
            logger.error("killing worker process %s: %s", self.name, reason)
        self.killed = True
        self.process.kill()

    @property
    def age(self) -> float:
        return time.monotonic() - self.started_at


class Supervisor:
    """Keep `processes` children running until shutdown is requested."""

    def __init__(
        self,
        options: WorkerOptions,
        handlers: Mapping[str, Handler],
        shutdown: Shutdown,
        *,
        processes: int,
    ) -> None:
        self._options = options
        self._shutdown = shutdown
        self._processes = processes
        self._children: list[Child] = []
        self._failures = 0
        self._burst_failed = False
        self._start_at = 0.0
        self._leases = SupervisedLeases(options.using, handlers)
        self._database_errors = DatabaseErrors()
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        shutdown.on_request(partial(self._wakeup_writer.sendall, b"!"))
        shutdown.on_exit_now(partial(self._kill_all, "its supervisor exits"))

    def run(self) -> int:
        """Supervise until shutdown is requested or a burst has ended; return the exit code.

        If the database does not recover, end the children and raise its error.
        """
        with watched(self._options.using, self._shutdown):
            return self._run()

    def _run(self) -> int:
        try:
            while not self._done:
                queries = connections[self._options.using].queries_log
                queries.clear()  # with DEBUG, Django keeps all queries
                sentinels = [child.process.sentinel for child in self._children]
                wait([self._wakeup_reader, *sentinels], self.poll())
        finally:
            self._shut_down()
        return 1 if self._shutdown.failed or self._cannot_start or self._burst_failed else 0

    @property
    def _done(self) -> bool:
        burst_is_over = self._options.burst and self._started_all and not self._children
        return self._shutdown.requested or burst_is_over or self._cannot_start

    @property
    def _cannot_start(self) -> bool:
        return self._failures >= MAX_FAILED_STARTS

    @property
    def _started_all(self) -> bool:
        return self._start_at > 0

    def poll(self) -> float:
        """Replace exited children and renew leases; return the seconds to wait."""
        self._remove_exited()
        self._start_missing()
        wait_for = self._renew_leases()
        if self._missing:
            wait_for = max(0.0, min(wait_for, self._start_at - time.monotonic()))
        return wait_for

    @property
    def _missing(self) -> int:
        if self._options.burst and self._started_all:
            return 0
        return self._processes - len(self._children)

    def _start_missing(self) -> None:
        if time.monotonic() >= self._start_at:
            missing = self._missing
            self._start_at = self._start_at or time.monotonic()
            self._children += [Child(self._options) for _ in range(missing)]

    def _remove_exited(self) -> None:
        for child in [child for child in self._children if child.process.exitcode is not None]:
            self._children.remove(child)
            code = child.process.exitcode
            expected = code == 0 or self._shutdown.requested
            log = logger.info if expected else logger.error
            log("worker process %s exited with code %s", child.name, code)
            # A burst does not replace it, so its messages may remain unprocessed.
            self._burst_failed |= self._options.burst and not expected
            has_failed = code != 0 and (
                child.age < STARTUP_PERIOD or not self._has_registered(child)
            )
            if child.killed or (self._shutdown.requested and code == 1):
                self._interrupt(child)
            self._release(child, f"its worker process exited with code {code}")
            self._failures = self._failures + 1 if has_failed else 0
            if has_failed:
                delay = min(2.0 ** (self._failures - 1), MAX_START_DELAY)
                self._start_at = time.monotonic() + delay

    def _has_registered(self, child: Child) -> bool:
        """Return True if the child registered, which means that it started working."""
        try:
            workers = registered_workers(self._options.using)
            return any(record.worker == child.name for record in workers)
        except Error:
            return False

    def _interrupt(self, child: Child) -> None:
        """Release the messages of a killed child without counting their deliveries.

        A handler that exceeded its timeout is excluded: its delivery counts, as after a crash.
        """
        try:
            leases = self._leases.within_timeout(child.name)
            interrupt(self._options.using, leases, reason="its worker process was killed")
        except Error as error:
            logger.error(
                "could not release the messages of worker %s without counting their deliveries: "
                "%s (%s)",
                child.name,
                error,
                advice(error),
            )

    def _release(self, child: Child, reason: str) -> None:
        try:
            release_all(self._options.using, child.name, reason)
            unregister(self._options.using, child.name)
        except Error as error:
            logger.error(
                "could not release the leases of worker %s, so they must expire: %s (%s)",
                child.name,
                error,
                advice(error),
            )

    def _renew_leases(self) -> float:
        by_name = {child.name: child for child in self._children}
        try:
            overdue = self._leases.renew(list(by_name))
        except Error as error:
            return self._database_errors.failed(error)
        self._database_errors.cleared()
        for name in overdue:
            by_name[name].kill("one of its handlers exceeded its timeout")
        return self._leases.check_interval

    def _renew_while_draining(self) -> float:
        try:
            return self._renew_leases()
        except Error:
            return MAX_START_DELAY

    def _shut_down(self) -> None:
        """Terminate the children; kill those that are still running after the shutdown timeout."""
        for child in self._children:
            child.process.terminate()
        deadline = time.monotonic() + self._options.shutdown_timeout + KILL_AFTER
        while self._alive and time.monotonic() < deadline:
            wait([child.process.sentinel for child in self._alive], self._renew_while_draining())
        self._kill_all("it did not exit in time")
        for child in self._children:
            child.process.join()
        self._remove_exited()

    @property
    def _alive(self) -> list[Child]:
        return [child for child in self._children if child.process.exitcode is None]

    def _kill_all(self, reason: str) -> None:
        for child in self._alive:
            child.kill(reason)
