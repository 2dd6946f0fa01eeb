"""The supervisor of several worker processes: starts, watches, replaces and stops them.

Children are spawned, never forked: a fork with an open SQLite connection corrupts the file. What a
child holds is released the moment it dies.
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

YOUNG = 5.0
"""Seconds within which the death of a child is a failure to start, as it is before it registers."""

LONGEST_REST = 30.0
"""Seconds between two tries to start a child that dies at once."""

GIVE_UP_AFTER = 10
"""So many children in a row that die at once end the supervisor as well."""

KILL_AFTER = 5.0
"""Seconds beyond the shutdown timeout that a child has to end by itself."""


class Child:
    """A process of the worker and the name it holds leases under."""

    def __init__(self, options: WorkerOptions) -> None:
        self.started_at = time.monotonic()
        self.killed = False
        unique = unique_part()
        spawn = multiprocessing.get_context("spawn")
        self.process = spawn.Process(target=work, args=(replace(options, supervised=True), unique))
        self.process.start()
        self.name = worker_name(pid=self.process.pid, unique=unique)

    def kill(self, why: str) -> None:
        """End the process whatever it does; said once."""
        if not self.killed:
            logger.error("killing worker process %s: %s", self.name, why)
        self.killed = True
        self.process.kill()

    @property
    def age(self) -> float:
        return time.monotonic() - self.started_at


class Supervisor:
    """Keeps `processes` children at work until asked to stop."""

    def __init__(
        self,
        options: WorkerOptions,
        handlers: Mapping[str, Handler],
        stop: Shutdown,
        *,
        processes: int,
    ) -> None:
        self._options = options
        self._stop = stop
        self._processes = processes
        self._children: list[Child] = []
        self._failures = 0
        self._burst_failed = False
        self._start_at = 0.0
        self._leases = SupervisedLeases(options.using, handlers)
        self._database_errors = DatabaseErrors()
        self._bell, self._ring = socket.socketpair()
        stop.on_request(partial(self._ring.sendall, b"!"))
        stop.on_leave(partial(self._kill_all, "nobody watches it any more"))

    def run(self) -> int:
        """Supervise until asked to stop, or until a burst is over; the exit code.

        Raises what the database failed with when there is no more hope; the children are gone then.
        """
        with watched(self._options.using, self._stop):
            return self._run()

    def _run(self) -> int:
        try:
            while not self._done:
                queries = connections[self._options.using].queries_log
                queries.clear()  # with DEBUG Django remembers them
                sentinels = [child.process.sentinel for child in self._children]
                wait([self._bell, *sentinels], self.poll())
        finally:
            self._shut_down()
        return 1 if self._stop.failed or self._gave_up or self._burst_failed else 0

    @property
    def _done(self) -> bool:
        over = self._options.burst and self._started_all and not self._children
        return self._stop.requested or over or self._gave_up

    @property
    def _gave_up(self) -> bool:
        return self._failures >= GIVE_UP_AFTER

    @property
    def _started_all(self) -> bool:
        return self._start_at > 0

    def poll(self) -> float:
        """Bury the dead, start what is missing, keep the leases; how long to rest."""
        self._remove_ended()
        self._start_missing()
        rest = self._keep()
        return max(0.0, min(rest, self._start_at - time.monotonic())) if self._missing else rest

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

    def _remove_ended(self) -> None:
        for child in [child for child in self._children if child.process.exitcode is not None]:
            self._children.remove(child)
            code = child.process.exitcode
            expected = code == 0 or self._stop.requested
            said = logger.info if expected else logger.error
            said("worker process %s has ended with exit code %s", child.name, code)
            # Nobody takes its place in a burst, and what it held may still be there.
            self._burst_failed |= self._options.burst and not expected
            has_failed = code != 0 and (child.age < YOUNG or not self._has_registered(child))
            if child.killed or (self._stop.requested and code == 1):
                self._interrupt(child)
            self._release(child, f"its process has ended with exit code {code}")
            self._failures = self._failures + 1 if has_failed else 0
            if has_failed:
                rest = min(2.0 ** (self._failures - 1), LONGEST_REST)
                self._start_at = time.monotonic() + rest

    def _has_registered(self, child: Child) -> bool:
        """Return whether the child registered, which means that it started to work."""
        try:
            workers = registered_workers(self._options.using)
            return any(record.worker == child.name for record in workers)
        except Error:
            return False

    def _interrupt(self, child: Child) -> None:
        """Give back what a killed child still held, without counting the deliveries.

        But for a handler beyond its timeout, which is released like that of a crash.
        """
        try:
            leases = self._leases.within_timeout(child.name)
            interrupt(self._options.using, leases, reason="its worker process had to be ended")
        except Error as error:
            logger.error("interruptions were not recorded: %s (%s)", error, advice(error))

    def _release(self, child: Child, reason: str) -> None:
        try:
            release_all(self._options.using, child.name, reason)
            unregister(self._options.using, child.name)
        except Error as error:
            said = "what %s held could not be released: %s (%s); its leases run out"
            logger.error(said, child.name, error, advice(error))

    def _keep(self) -> float:
        by_name = {child.name: child for child in self._children}
        try:
            overdue = self._leases.renew(list(by_name))
        except Error as error:
            return self._database_errors.failed(error)
        self._database_errors.cleared()
        for name in overdue:
            by_name[name].kill("it runs a handler beyond its timeout")
        return self._leases.rest

    def _keep_while_draining(self) -> float:
        try:
            return self._keep()
        except Error:
            return LONGEST_REST

    def _shut_down(self) -> None:
        """Ask the children to drain; kill those that do not end in time."""
        for child in self._children:
            child.process.terminate()
        deadline = time.monotonic() + self._options.shutdown_timeout + KILL_AFTER
        while self._alive and time.monotonic() < deadline:
            wait([child.process.sentinel for child in self._alive], self._keep_while_draining())
        self._kill_all("it has not ended in time")
        for child in self._children:
            child.process.join()
        self._remove_ended()

    @property
    def _alive(self) -> list[Child]:
        return [child for child in self._children if child.process.exitcode is None]

    def _kill_all(self, why: str) -> None:
        for child in self._alive:
            child.kill(why)
