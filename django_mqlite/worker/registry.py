"""The record of this worker in the register, and the cleanup after workers that died.

For people and for speed: leases alone decide what is right.
"""

import time

from .. import timing
from ..models import Message
from ..types import WorkerRecord
from ..verbs.base import BATCH
from ..verbs.sweeps import release_worker
from ..verbs.workers import Tally, is_live, register, registered_workers, unregister
from .identity import ProcessIdentity, boot_id, this_process
from .options import WorkerOptions

WRITE_EVERY = 15.0
"""Seconds between two writes of a worker that does nothing else."""


class WorkerEntry:
    """This worker's entry."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._process = this_process()
        self._started_at = timing.now_ms()
        self._write_at = 0.0
        self._tally = Tally()

    def count(self, message: Message) -> None:
        """A delivery has ended, and the message is in the state that it has now."""
        self._tally.add(message.queue, message.state, now=timing.now_ms())

    def refresh(self, *, in_flight: int) -> None:
        """Write it, unless that was done a moment ago."""
        if time.monotonic() < self._write_at:
            return
        self._write_at = time.monotonic() + WRITE_EVERY
        self._write(in_flight)

    def _write(self, in_flight: int) -> None:
        register(
            self._options.using,
            WorkerRecord(
                worker=self._options.name,
                host=self._process.host,
                boot_id=self._process.boot_id,
                pid_namespace=self._process.pid_namespace,
                pid=self._process.pid,
                process_started_at=self._process.started_at,
                queues=self._options.queues,
                slots=self._options.threads,
                in_flight=in_flight,
                started_at=self._started_at,
                reaps=self._options.reaper,
                settled=self._tally.last_hour(now=timing.now_ms()),
            ),
        )

    def remove(self) -> None:
        """The worker ends in order; what it has counted since the last writing is written first."""
        if self._tally.last_hour(now=timing.now_ms()):
            self._write(in_flight=0)
        unregister(self._options.using, self._options.name)


def release_gone(using: str) -> int:
    """End the leases of workers of this machine whose process is gone; how many messages that were.

    A process is known by boot, pid namespace, pid and start time, so a reused pid, a process of
    another container and a machine of the same name are never taken for a worker's. Entries of
    workers elsewhere are only forgotten when they are stale: their leases run out by themselves.
    """
    released, now = 0, timing.now_ms()
    for record in registered_workers(using):
        identity = identity_of(record)
        if identity.is_gone(seen_at=record.seen_at):
            released += release_all(using, record.worker, "its process is gone")
            unregister(using, record.worker)
        elif not (identity.is_here or is_live(record, now=now)):
            unregister(using, record.worker)
    return released


def release_all(using: str, worker: str, reason: str) -> int:
    """End every lease of a worker that is gone."""
    total = 0
    while True:
        count = release_worker(using, worker, reason=reason, limit=BATCH)
        total += count
        if count < BATCH:
            return total


def identity_of(record: WorkerRecord) -> ProcessIdentity:
    """The process that the record is of."""
    return ProcessIdentity(
        host=record.host,
        boot_id=record.boot_id,
        pid_namespace=record.pid_namespace,
        pid=record.pid,
        started_at=record.process_started_at,
    )


def other_machine(using: str) -> WorkerRecord | None:
    """A live worker of another machine on the same file, which SQLite's locks do not reach.

    Machines are told apart by the kernel's boot id, not by the host name, which changes with every
    container. A worker of this machine from before its last start is not on another machine.
    """
    now = timing.now_ms()
    for record in registered_workers(using):
        is_of_former_boot = identity_of(record).is_of_former_boot(seen_at=record.seen_at)
        is_elsewhere = record.boot_id != boot_id() and not is_of_former_boot
        if is_elsewhere and is_live(record, now=now):
            return record
    return None
