"""Operations by an operator: cancel, run now, release, discard and activate."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from ..arguments import checked_id, checked_ids, checked_integer, checked_text, optional_text
from ..doorbell import ring_doorbell
from ..guard import safe_repr
from ..signals import send_dead_letter_after_commit, send_released_after_commit
from ..store import sqlite as store
from ..transactions import after_commit, write_transaction, yield_to_other_writers
from ..types import UNFINISHED, State, fingerprint
from .any_text import retry_with_any_text
from .async_twins import async_twin, has_async_twin
from .base import BATCH, M, Verbs, require_queue
from .dead_letters import Progress
from .references import naming_references


class OperationVerbs(Verbs[M]):
    """Cancel, run now, release, discard and activate messages."""

    @has_async_twin
    @naming_references
    def cancel(self, id: int, *, queue: str | None = None) -> bool:
        """Delete a scheduled message that was never delivered; return False for any other.

        With `queue`, messages of other queues are not deleted either.
        """
        id, queue = checked_id(id), optional_text(queue, "queue")
        with write_transaction(self.database) as (connection, _):
            return store.operations.CANCEL.run(connection, id=id, queue=queue) > 0

    acancel = async_twin(cancel)

    @has_async_twin
    def run_now(self, id: int) -> bool:
        """Make a scheduled message claimable; return False if the message is not scheduled.

        This includes messages that wait for a retry. The message keeps its place in its group and
        its expiry time.
        """
        with write_transaction(self.database) as (connection, now):
            activated = store.operations.RUN_NOW.run(connection, id=checked_id(id), now=now) > 0
            if activated:
                after_commit(self.database, partial(ring_doorbell, self.database))
        return activated

    arun_now = async_twin(run_now)

    @has_async_twin
    @retry_with_any_text
    def release(self, id: int, *, seen: str, reason: str = "released manually") -> bool:
        """End a lease, so that the message can be delivered again at once.

        `seen` is the `lease_fingerprint` that the operator saw. If the message has no lease or
        another one by now, return False and change nothing.

        The delivery counts: at its delivery limit the message becomes a dead letter. `reason` is
        recorded in `errors`. The previous holder gets LockLost when it settles the message.
        """
        id, using = checked_id(id), self.database
        reason = checked_text(reason, "reason")
        if not isinstance(seen, str):
            raise TypeError(f"seen must be a str, not {safe_repr(seen)}")
        with write_transaction(using) as (connection, now):
            token = store.leases.HELD_TOKEN.value(connection, id=id)
            if token is None or fingerprint(token) != seen:
                return False
            released = store.leases.release_lease(connection, id, token, reason=reason, now=now)
            send_released_after_commit(using, released, sender=self.model, now=now, reason=reason)
        return bool(released)

    arelease = async_twin(release)

    @has_async_twin
    def discard(self, id: int, *, queue: str | None = None) -> bool:
        """End an unfinished message without delivering it again; return False if it has ended.

        With `queue`, a message of another queue is not discarded either.

        The message becomes a dead letter with the reason "Discarded", so it can be redriven. If it
        is locked, its lease ends at once: the holder gets LockLost when it settles the message. Its
        worker notices within 0.1 s: it cancels a coroutine, and sets `message.lease.lost` for a
        handler in a thread.
        """
        id, queue = checked_id(id), optional_text(queue, "queue")
        return self._discard([id], UNFINISHED, queue=queue) > 0

    adiscard = async_twin(discard)

    @has_async_twin
    def discard_many(self, ids: Iterable[int]) -> int:
        """Discard those of the messages that are unfinished; return their number.

        Each batch of 1,000 is one transaction. Repeating the call discards nothing twice.
        """
        discard = partial(self._discard, states=UNFINISHED)
        return self._in_batches_of_ids(checked_ids(ids), discard)

    adiscard_many = async_twin(discard_many)

    def discard_queue(
        self,
        queue: str,
        *,
        state: str | None = None,
        error_class: str | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Discard the unfinished messages of `queue`; return their number.

        `state` selects those in this state, and `error_class` those whose last error was of this
        class, without its module, such as "ConnectionRefusedError": messages that are retried.
        `limit` is the maximum number to discard. Messages that are enqueued during the call are not
        discarded. `progress` is called after each batch with the number so far. Raises
        QueueNotFound, and ValueError for a state of finished messages.
        """
        states = (_unfinished_state(state),) if state is not None else UNFINISHED
        discard = partial(self._discard, states=states, last_error=error_class)
        if error_class is None:
            return self._in_batches_of_queue(queue, state, limit, progress, discard)
        ids = self.unfinished_ids_of_class(queue, error_class, state=state)
        limit = None if limit is None else checked_integer(limit, "limit")
        return self._in_batches_of_ids(ids[:limit], discard, progress)

    def unfinished_ids_of_class(
        self, queue: str, error_class: str, *, state: str | None = None
    ) -> list[int]:
        """Return the ids of the messages that discard_queue() with these arguments discards."""
        queue = checked_text(queue, "queue")
        error_class = checked_text(error_class, "error_class")
        if state is not None:
            state = _unfinished_state(state)
        connection = self.connection
        require_queue(connection, queue)
        return store.operations.unfinished_ids_of_class(connection, queue, state, error_class)

    @has_async_twin
    def activate(self, id: int, *, queue: str | None = None) -> bool:
        """Make a deferred message active again; return False if it is not deferred.

        It keeps its place in its group, its delivery count and its expiry time. At its delivery
        limit it is delivered once more. With `queue`, a message of another queue is not activated
        either.
        """
        return self._activate([checked_id(id)], optional_text(queue, "queue")) > 0

    aactivate = async_twin(activate)

    @has_async_twin
    def activate_many(self, ids: Iterable[int]) -> int:
        """Activate those of the messages that are deferred; return their number.

        Each batch of 1,000 is one transaction.
        """
        return self._in_batches_of_ids(checked_ids(ids), self._activate)

    aactivate_many = async_twin(activate_many)

    def activate_queue(
        self, queue: str, *, limit: int | None = None, progress: Progress | None = None
    ) -> int:
        """Activate the deferred messages of `queue`; return their number.

        `limit` is the maximum number to activate. `progress` is called after each batch with the
        number so far. Raises QueueNotFound.
        """
        return self._in_batches_of_queue(queue, State.DEFERRED, limit, progress, self._activate)

    @retry_with_any_text
    def _discard(
        self,
        ids: Sequence[int],
        states: Collection[str],
        last_error: str | None = None,
        queue: str | None = None,
    ) -> int:
        using = self.database
        with write_transaction(using) as (connection, now):
            discarded = store.operations.discard(
                connection, ids, states, now=now, last_error=last_error, queue=queue
            )
            for message, description in discarded:
                send_dead_letter_after_commit(
                    using, message, self.model, reason="Discarded", description=description
                )
            if discarded:
                after_commit(using, partial(ring_doorbell, using))
        return len(discarded)

    def _activate(self, ids: Sequence[int], queue: str | None = None) -> int:
        with write_transaction(self.database) as (connection, now):
            count = store.operations.activate(connection, ids, now=now, queue=queue)
            if count:
                after_commit(self.database, partial(ring_doorbell, self.database))
        return count

    def _in_batches_of_ids(
        self,
        ids: Sequence[int],
        change: Callable[[Sequence[int]], int],
        progress: Progress | None = None,
    ) -> int:
        count = 0
        for start in range(0, len(ids), BATCH):
            with yield_to_other_writers(self.database):
                count += change(ids[start : start + BATCH])
            if progress is not None:
                progress(count)
        return count

    def _in_batches_of_queue(
        self,
        queue: str,
        state: str | None,
        limit: int | None,
        progress: Progress | None,
        change: Callable[[Sequence[int]], int],
    ) -> int:
        """Change the queue's unfinished messages batch by batch, up to the newest one now."""
        queue = checked_text(queue, "queue")
        left = None if limit is None else checked_integer(limit, "limit")
        connection: Any = self.connection
        require_queue(connection, queue)
        newest = store.explain.newest_id(connection)
        count = 0
        while left is None or count < left:
            size = BATCH if left is None else min(BATCH, left - count)
            with yield_to_other_writers(self.database), write_transaction(self.database):
                ids = store.operations.unfinished_ids(
                    connection, queue, state, newest=newest, limit=size
                )
                count += change(ids)
            if ids and progress is not None:
                progress(count)
            if len(ids) < size:
                break
        return count


def _unfinished_state(state: Any) -> State:
    if not (isinstance(state, str) and state in UNFINISHED):
        raise ValueError(
            f"state must be one of {', '.join(UNFINISHED)}, not {safe_repr(state)}: other "
            "messages have ended"
        )
    return State(state)
