"""The worker's registration, and cleanup after workers that died.

Registrations are for monitoring and faster recovery; correctness depends on leases alone.
"""

import time

from .. import timing
from ..models import Message
from ..timing import epoch_ms
from ..types import WorkerRecord
from ..verbs.base import BATCH
from ..verbs.sweeps import release_worker
from ..verbs.tallies import Tally
from ..verbs.workers import is_live, register, registered_workers, unregister
from .identity import ProcessIdentity, boot_id, this_process
from .options import WorkerOptions

WRITE_INTERVAL = 15.0
"""Seconds between two writes of a worker's registration."""


class WorkerEntry:
    """The registration of this worker."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._process = this_process()
        self._started_at = timing.now_ms()
        self._next_write = 0.0
        self._tally = Tally()

    def count(self, message: Message) -> None:
        """Count a finished delivery by the state of its message, and the times that it took."""
        now, claimed_at = timing.now_ms(), epoch_ms(message.locked_at)
        due_at = epoch_ms(message.visible_at) if message.visible_at else claimed_at
        self._tally.add(
            message.queue,
            message.state,
            waited_ms=claimed_at - due_at,
            ran_ms=now - claimed_at,
            now=now,
        )

    def refresh(self, *, in_flight: int) -> None:
        """Write the registration if WRITE_INTERVAL has passed since the last write."""
        if time.monotonic() < self._next_write:
            return
        self._next_write = time.monotonic() + WRITE_INTERVAL
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
            ),
            self._tally.recent(now=timing.now_ms()),
        )

    def remove(self) -> None:
        """Write the final counts, then delete the registration."""
        if self._tally.recent(now=timing.now_ms()):
            self._write(in_flight=0)
        unregister(self._options.using, self._options.name)


def release_dead_workers(using: str) -> int:
    """Release the leases of dead workers on this machine; return the number of messages.

    A process is identified by boot, pid namespace, pid and start time. A reused pid, a process in
    another container and a machine with the same name are therefore never mistaken for a worker.
    For workers elsewhere, only stale registrations are deleted; their leases expire.
    """
    released_count, now = 0, timing.now_ms()
    for record in registered_workers(using):
        identity = identity_of(record)
        if identity.is_dead(seen_at=record.seen_at):
            released_count += release_all(using, record.worker, "its worker process is dead")
            unregister(using, record.worker)
        elif not (identity.is_here or is_live(record, now=now)):
            unregister(using, record.worker)
    return released_count


def release_all(using: str, worker: str, reason: str) -> int:
    """Release all leases of a worker that has ended; return the number of messages."""
    total = 0
    while True:
        count = release_worker(using, worker, reason=reason, limit=BATCH)
        total += count
        if count < BATCH:
            return total


def identity_of(record: WorkerRecord) -> ProcessIdentity:
    """Return the identity of the process that wrote the record."""
    return ProcessIdentity(
        host=record.host,
        boot_id=record.boot_id,
        pid_namespace=record.pid_namespace,
        pid=record.pid,
        started_at=record.process_started_at,
    )


def other_machine(using: str) -> WorkerRecord | None:
    """Return a live worker on another machine that uses the same file, or None.

    SQLite's locks do not work across machines. Machines are distinguished by the kernel's boot id,
    not by the host name, which changes with every container. A worker that ran on this machine
    before its last boot does not count as being on another machine.
    """
    now = timing.now_ms()
    for record in registered_workers(using):
        is_from_previous_boot = identity_of(record).is_from_previous_boot(seen_at=record.seen_at)
        is_elsewhere = record.boot_id != boot_id() and not is_from_previous_boot
        if is_elsewhere and is_live(record, now=now):
            return record
    return None
