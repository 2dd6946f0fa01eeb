"""Leases are kept and ended."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from .. import clock
from ..deliveries import Claim, Settlement, claim_rows, settle
from ..doorbell import ring
from ..durations import Duration
from ..fields import moment
from ..store import renew
from ..store.rows import MessageRow
from ..transactions import after_commit, write_transaction
from ..types import Completion, Lease, Outcome, Rejection
from .base import VerbManager, lock_ms
from .rows import from_rows_of_worker

if TYPE_CHECKING:
    from ..models import Message


UNREADABLE = Rejection(
    reason="Unreadable",
    description="properties is not a JSON object, or errors is not a JSON array",
)


def _is_damaged(message: "Message") -> bool:
    return not (
        isinstance(message.properties, dict | None) and isinstance(message.errors, list | None)
    )


class SettleVerbs(VerbManager["Message"]):
    """Renewing and settling."""

    def settle(
        self, message: "Message", outcome: Outcome, *, error: BaseException | str | None = None
    ) -> bool:
        """End the delivery as `outcome` says; False if its lease is lost, nothing written."""
        settlement = Settlement(message=message, outcome=outcome, error=error)
        with _states_kept([settlement]), write_transaction(self.using_alias) as connection:
            return settle(connection, [settlement], now=clock.now_ms())[0]

    def complete_many(self, messages: Sequence["Message"]) -> list[bool]:
        """Complete all of them in one statement; for each whether its lease still held.

        Within 30 minutes the same again is True again and changes nothing. Messages of another
        database are a ValueError.
        """
        self._of_this_database(messages)
        settlements = [Settlement(message=message, outcome=Completion()) for message in messages]
        with _states_kept(settlements), write_transaction(self.using_alias) as connection:
            return settle(connection, settlements, now=clock.now_ms())

    def exchange(
        self,
        settlements: Sequence[Settlement],
        queues: Iterable[str],
        *,
        limit: int,
        worker: str,
        at_least_ms: int = 0,
    ) -> tuple[list[bool], list["Message"]]:
        """Settle what has finished and claim up to `limit` more, in one transaction, one commit.

        The queues are asked in the order given, and a lease lasts `at_least_ms`. Returns for each
        settlement whether its lease still held, and the claimed messages.
        """
        rows: list[MessageRow] = []
        with _states_kept(settlements), write_transaction(self.using_alias) as connection:
            now = clock.now_ms()
            held = settle(connection, settlements, now=now)
            for queue in queues:
                if len(rows) < limit:
                    wanted = Claim(limit=limit - len(rows), worker=worker, at_least_ms=at_least_ms)
                    rows += claim_rows(connection, queue, wanted, now=now)
        return held, self._given(rows)

    def _given(self, rows: Sequence[MessageRow]) -> list["Message"]:
        """Return the claimed messages, and dead-letter those that another program has damaged.

        A handler must not be given text where it expects `properties`, and one such row must not
        keep the others from their handlers.
        """
        messages = from_rows_of_worker(self.model, self.using_alias, rows)
        damaged = [message for message in messages if _is_damaged(message)]
        for message in damaged:
            self.settle(message, UNREADABLE)
        if damaged:  # what stands behind them may be claimed at once
            after_commit(self.using_alias, partial(ring, self.using_alias))
        return [message for message in messages if message not in damaged] if damaged else messages

    def renew_many(
        self,
        messages: Sequence["Message"],
        lock_duration: Duration | None = None,
        *,
        at_least_ms: int = 0,
    ) -> list[bool]:
        """Renew all their leases in one statement; for each whether it still held.

        `locked_until` of the renewed ones tells the new deadline. A lease is never shortened and an
        expired one never revived. Doing it again counts from then. Messages of another database are
        a ValueError.
        """
        self._of_this_database(messages)
        leases = [lease for message in messages if (lease := message.lease)]
        until = self.renew_leases(leases, lock_duration, at_least_ms=at_least_ms)
        for message in messages:
            if message.lease in until:
                message.locked_until = moment(until[message.lease])
        return [message.lease in until for message in messages]

    def _of_this_database(self, messages: Iterable["Message"]) -> None:
        for message in messages:
            if message._state.db not in (None, self.using_alias):
                raise ValueError(
                    f"{message} is of database {message._state.db!r}: use "
                    f"Message.objects.db_manager({message._state.db!r})"
                )

    def renew_leases(
        self,
        leases: Sequence[Lease],
        lock_duration: Duration | None = None,
        *,
        at_least_ms: int = 0,
    ) -> dict[Lease, int]:
        """The same for leases without their messages; the new deadline of each that still held."""
        lock_duration_ms = lock_ms(lock_duration)
        with write_transaction(self.using_alias) as connection:
            return renew.renew(
                connection,
                leases,
                now=clock.now_ms(),
                lock_duration=lock_duration_ms,
                at_least=at_least_ms,
            )


@contextmanager
def _states_kept(settlements: Sequence[Settlement]) -> Iterator[None]:
    """What was not committed did not happen to the instances either."""
    before = [(settlement.message, settlement.message.state) for settlement in settlements]
    try:
        yield
    except BaseException:
        for message, state in before:
            message.state = state
        raise
