"""The manager of messages: every verb."""

from typing import TYPE_CHECKING

from ..explanation import explain
from ..store import browse
from ..store.cancel import cancel
from ..store.data_version import data_version
from ..transactions import write_transaction
from ..types import Explanation
from .base import must_exist, positive
from .claim import ClaimVerbs
from .enqueue import EnqueueVerbs
from .rows import from_rows
from .settle import SettleVerbs

if TYPE_CHECKING:
    from ..models import Message


class MessageManager(EnqueueVerbs, ClaimVerbs, SettleVerbs):
    """Enqueue, claim, renew, settle; cancel and look."""

    def cancel(self, id: int) -> bool:
        """Delete a scheduled message that was never delivered; False if it is not such a one."""
        with write_transaction(self.using_alias) as connection:
            return cancel(connection, id)

    def peek(self, queue: str, *, limit: int = 10) -> list["Message"]:
        """The next messages of `queue` in claim order, without a lease. Raises QueueNotFound.

        First those a claim could take, then those that wait behind another of their group.
        """
        positive(limit, "limit")
        connection = self.connection
        rows = browse.peek(connection, queue, limit=limit)
        if not rows:
            must_exist(connection, queue)
        return from_rows(self.model, self.using_alias, rows)

    # Django's explain() of a query is still there on the query.
    def explain(self, id: int) -> Explanation:  # type: ignore[override]
        """Why the message with this id has not run, what holds it, or what became of it.

        A read, quick at any depth; also for an id that is not there.
        """
        return explain(self.connection, id)

    def data_version(self) -> int:
        """A number that changes when another connection commits; own commits do not count."""
        connection = self.connection
        connection.ensure_connection()
        with connection.wrap_database_errors:
            return data_version(connection.connection)
