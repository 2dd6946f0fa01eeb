"""Claim messages."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from .. import timing
from ..exceptions import TransactionRefused
from ..store import sqlite as store
from ..timing import Duration
from ..transactions import in_callers_transaction, write_transaction
from .base import M, from_rows, lock_ms, positive, require_queue
from .settle import Claim, SettleVerbs, claim_rows


class ClaimVerbs(SettleVerbs[M]):
    """Taking messages, under a lease or for good."""

    def claim(
        self,
        queue: str,
        *,
        limit: int = 1,
        lock_duration: Duration | None = None,
        worker: str | None = None,
        attempt_id: str | None = None,
    ) -> list[M]:
        """Take up to `limit` messages of `queue` under a lease, in claim order; [] for none.

        Each counts a delivery. The lease lasts `lock_duration` (timedelta or seconds), by default
        the queue's; settle each message before it ends, or renew it. `worker` says who, for people.

        Called twice it takes other messages, unless `attempt_id` is given: for 30 minutes the same
        attempt is given the same messages and tokens again, as far as their leases still hold, and
        no delivery is counted. For callers who may lose an answer on the way.

        Raises QueueNotFound, and TransactionRefused inside the caller's `atomic()`.
        """
        positive(limit, "limit")
        wanted = Claim(
            limit=limit, worker=worker, lock_ms=lock_ms(lock_duration), attempt_id=attempt_id
        )
        while True:
            with self._claiming() as connection:
                rows = claim_rows(connection, queue, wanted, now=timing.now_ms())
            messages = self._given(rows)
            if messages or not rows:
                return messages

    def claim_deferred(
        self,
        queue: str,
        ids: Iterable[int],
        *,
        lock_duration: Duration | None = None,
        worker: str | None = None,
    ) -> list[M]:
        """Take the deferred messages with these ids under a lease; others are passed over.

        Each counts a delivery. Raises QueueNotFound, and TransactionRefused inside the caller's
        `atomic()`.
        """
        wanted = list(ids)
        lock_duration_ms = lock_ms(lock_duration)
        with self._claiming() as connection:
            require_queue(connection, queue)
            rows = store.claim.claim_deferred(
                connection,
                queue,
                wanted,
                now=timing.now_ms(),
                secret=token_hex(16),
                worker=worker,
                lock_duration=lock_duration_ms,
            )
        return self._given(rows)

    def claim_and_delete(self, queue: str, *, limit: int = 1) -> list[M]:
        """Take up to `limit` messages of `queue` for good: no lease, nothing to settle.

        At most once: what the caller does not handle is lost. In the caller's transaction they are
        gone with its commit. Raises QueueNotFound.
        """
        positive(limit, "limit")
        with write_transaction(self.database) as (connection, now):
            rows = store.claim.claim_and_delete(connection, queue, now=now, limit=limit)
            if not rows:
                require_queue(connection, queue)
        return from_rows(self.model, self.database, rows)

    def claimable(self) -> set[str]:
        """The queues in which a claim would find something. A read: it takes no write lock."""
        return store.claim.claimable_queues(self.connection, now=timing.now_ms())

    @contextmanager
    def _claiming(self) -> Iterator[Any]:
        if in_callers_transaction(self.database):
            raise TransactionRefused
        with write_transaction(self.database) as (connection, _):
            yield connection
