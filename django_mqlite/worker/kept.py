"""Leases that a supervisor keeps for its children: a handler may hold their interpreter's lock."""

from collections.abc import Mapping, Sequence

from ..handlers import Handler
from ..models import Message
from ..workers import HeldLease, held_leases

LONGEST_REST = 1.0
"""Seconds; less where leases are short."""


class KeptLeases:
    """A child renews at a third of the lease; what has less than a third left is renewed here."""

    def __init__(self, using: str, handlers: Mapping[str, Handler]) -> None:
        self.rest = LONGEST_REST
        self._using = using
        self._max_runtime_ms = {
            queue: handler.max_runtime_ms
            for queue, handler in handlers.items()
            if handler.max_runtime_ms and not handler.is_async
        }

    def renew(self, workers: Sequence[str]) -> set[str]:
        """Renew what is about to run out; the workers that run a handler beyond its max_runtime.

        A read where nothing is to be done. Asked so often that a third of the shortest lease is
        enough.
        """
        held = held_leases(self._using, workers)
        overdue = {lease.worker for lease in held if self._is_overdue(lease)}
        late = [lease.lease for lease in held if lease.worker not in overdue and lease.is_late]
        if late:
            Message.objects.db_manager(self._using).renew_leases(late)
        shortest = min((lease.lock_duration_ms for lease in held), default=6_000)
        self.rest = min(LONGEST_REST, shortest / 6_000)
        return overdue

    def _is_overdue(self, lease: HeldLease) -> bool:
        limit = self._max_runtime_ms.get(lease.lease.queue)
        return limit is not None and lease.ran_ms > limit
