"""Operations on single messages by an operator: cancel, run now, release a lease."""

from functools import partial

from ..arguments import checked_id, checked_text
from ..doorbell import ring_doorbell
from ..guard import safe_repr
from ..signals import send_released_after_commit
from ..store import sqlite as store
from ..transactions import after_commit, write_transaction
from ..types import fingerprint
from .any_text import retry_with_any_text
from .async_twins import async_twin, has_async_twin
from .base import M, Verbs
from .references import naming_references


class OperationVerbs(Verbs[M]):
    """Cancel a scheduled message, run it now, or release a lease."""

    @has_async_twin
    @naming_references
    def cancel(self, id: int) -> bool:
        """Delete a scheduled message that was never delivered; return False for any other."""
        with write_transaction(self.database) as (connection, _):
            return store.operations.CANCEL.run(connection, id=checked_id(id)) > 0

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
