"""Leases that a supervisor keeps for its children: a handler may hold their interpreter's lock."""

from collections.abc import Mapping, Sequence

from ..handlers import Handler
from ..models import Message
from ..types import Lease
from ..workers import HeldLease, held_leases
from .lease_keeper import CANCEL_GRACE_MS

LONGEST_REST = 1.0
"""Seconds; less where leases are short."""


class KeptLeases:
    """A child renews at a third of the lease; what has less than a third left is renewed here."""

    def __init__(self, using: str, handlers: Mapping[str, Handler]) -> None:
        self.rest = LONGEST_REST
        self._using = using
        self._handlers = handlers

    def renew(self, workers: Sequence[str]) -> set[str]:
        """Renew what is about to run out; the workers that run a handler beyond its max_runtime.

        A coroutine has some time more, in which its own process cancels it. A read where nothing is
        to be done. Asked so often that a third of the shortest lease is enough.
        """
        held = held_leases(self._using, workers)
        late = [lease.lease for lease in held if lease.is_late and not self._is_overdue(lease)]
        if late:
            Message.objects.db_manager(self._using).renew_leases(late)
        shortest = min((lease.lock_duration_ms for lease in held), default=6_000)
        self.rest = min(LONGEST_REST, shortest / 6_000)
        return {lease.worker for lease in held if self._is_overdue(lease, grace=True)}

    def innocent(self, worker: str) -> list[Lease]:
        """The leases of a worker whose handlers have not had their time."""
        held = held_leases(self._using, [worker])
        return [lease.lease for lease in held if not self._is_overdue(lease)]

    def _is_overdue(self, lease: HeldLease, *, grace: bool = False) -> bool:
        handler = self._handlers.get(lease.lease.queue)
        if handler is None or handler.max_runtime_ms is None:
            return False
        more = CANCEL_GRACE_MS if grace and handler.is_async else 0
        return lease.ran_ms > handler.max_runtime_ms + more
