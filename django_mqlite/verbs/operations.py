"""A person steps in: cancel, run now, release a lease."""

from functools import partial

from ..doorbell import ring_doorbell
from ..signals import tell_released
from ..store import sqlite as store
from ..transactions import after_commit, write_transaction
from ..types import clamped, fingerprint
from .base import M, Verbs


class OperationVerbs(Verbs[M]):
    """What nobody's code does on its own."""

    def cancel(self, id: int) -> bool:
        """Delete a scheduled message that was never delivered; False if it is not such a one."""
        with write_transaction(self.database) as (connection, _):
            return store.operations.cancel(connection, clamped(id))

    def run_now(self, id: int) -> bool:
        """Make a scheduled message due, also one that backs off; False if it is not scheduled.

        Its place in its group stays, and so does the end of its time to live.
        """
        with write_transaction(self.database) as (connection, now):
            is_due = store.operations.run_now(connection, clamped(id), now=now)
            if is_due:
                after_commit(self.database, partial(ring_doorbell, self.database))
        return is_due

    def release(self, id: int, *, seen: str, reason: str = "released by hand") -> bool:
        """End the lease that was seen: back to work at once, at its bound to the dead letters.

        `seen` is the `lease_fingerprint` of the message when somebody decided: False, and nothing
        is written, if it has another lease or none by now. The delivery stays counted, `reason`
        is remembered in `errors`, and whoever held the lease gets LockLost when it settles.
        """
        using = self.database
        with write_transaction(using) as (connection, now):
            token = store.release.held_token(connection, clamped(id))
            if token is None or fingerprint(token) != seen:
                return False
            released = store.release.release_lease(connection, id, token, reason=reason, now=now)
            tell = partial(tell_released, self.model, using, released, now, reason)
            after_commit(using, tell)
        return bool(released)
